"""The errors of envport, grouped by what failed.

    EnvportError
    ├── ConfigurationError          the environments or settings cannot be served
    │   ├── EnvironmentNotFound     no environment of that name, module or file
    │   ├── InvalidEnvironment      the class breaks the authoring contract
    │   ├── InvalidOption           a constructor option is unknown or has a bad value
    │   ├── MissingExtra            an optional package is not installed; an ImportError too
    │   └── InvalidAccess           the token settings are unusable or unsafe
    ├── RequestError                the request cannot be carried out; nothing was changed
    │   ├── InvalidRequest          a field is malformed
    │   ├── UnknownEnvironment      the gateway serves no environment of that name
    │   ├── UnknownTask             no such split or task
    │   ├── UnknownEpisode          unknown, expired, closed, or another principal's
    │   ├── EpisodeOver             the episode has ended
    │   ├── EpisodeBusy             an earlier call of the episode runs on, although its caller has left
    │   ├── UnknownTool             the environment has no tool of that name
    │   ├── InvalidArguments        the tool's arguments break its schema
    │   ├── AtCapacity              no room now; says when to try again
    │   │   ├── Draining            the gateway is being stopped and refuses new episodes
    │   │   └── Resuming            the episode is being put back after a restart of the gateway
    │   ├── Unauthenticated         no valid token
    │   └── PermissionDenied        the token's scopes do not cover this
    ├── EpisodeFailed               a fault that is not the player's ended the episode; never a reward of zero
    ├── WorkerLost                  the worker of the environment is gone; inside the gateway only
    ├── CallerLeft                  the client disconnected before its answer; inside the gateway only
    ├── GatewayUnreachable          the client got no usable answer from the gateway
    ├── ToolError                   raised by an environment: a message for its player
    └── UpstreamLost                raised by an environment: a system that it uses has failed

Each class has a `code`, which is sent over HTTP, so that the client raises the same class as the gateway.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

_Owner = Literal["player", "environment", "infrastructure"]

__all__ = [
    "AtCapacity",
    "CallerLeft",
    "ConfigurationError",
    "Draining",
    "EnvironmentNotFound",
    "EnvportError",
    "EpisodeBusy",
    "EpisodeFailed",
    "EpisodeOver",
    "GatewayUnreachable",
    "InvalidAccess",
    "InvalidArguments",
    "InvalidEnvironment",
    "InvalidOption",
    "InvalidRequest",
    "MissingExtra",
    "PermissionDenied",
    "RequestError",
    "Resuming",
    "StoreUnavailable",
    "ToolError",
    "Unauthenticated",
    "UnknownEnvironment",
    "UnknownEpisode",
    "UnknownTask",
    "UnknownTool",
    "UpstreamLost",
    "WorkerLost",
    "error_fields",
    "error_from_code",
]


class EnvportError(Exception):
    """Base class of every error that envport raises on purpose."""

    code: ClassVar[str] = "error"

    @property
    def message(self) -> str:
        """The message for the person or model that caused the error: what went wrong, and what is allowed."""
        return str(self)


class ToolError(EnvportError):
    """Raised by an environment's tool to tell the player what went wrong. The episode continues.

    If `reset` raises it, the message goes to the client that opens the episode. It says why the episode cannot begin,
    such as what is wrong with the task.

    Args:
        message: What went wrong.
        content: What the player is shown after the message: anything that a tool may return as an observation, such as
            an image, or a list of texts and images.
    """

    code = "tool_error"

    def __init__(self, message: str = "", *, content: Any = None):
        super().__init__(message)
        self.content = content


class UpstreamLost(EnvportError):
    """Raised by an environment's tool or `reset`: a system that it uses has failed, such as a server or a browser.

    The episode ends as failed with the reason `upstream`. This is a fault, never a reward of zero. The message and
    the cause are written to the log only.
    """

    code = "upstream_lost"


class ConfigurationError(EnvportError):
    """The environments or settings cannot be served. The command line exits with status 2."""

    code = "configuration"


class EnvironmentNotFound(ConfigurationError):
    """No entry point, module or file yields the environment that was named."""

    code = "environment_not_found"


class InvalidEnvironment(ConfigurationError):
    """An environment class breaks the authoring contract."""

    code = "invalid_environment"


class InvalidOption(ConfigurationError):
    """An option of an environment is unknown, or its value is not allowed."""

    code = "invalid_option"


class MissingExtra(ConfigurationError, ImportError):
    """An optional package is missing. It is an `ImportError` too, for whoever tries whether a module can be imported.

    Args:
        what: The feature that needs the package.
        extra: The extra of the `envport` distribution that installs the package.
        command: The command that installs the package, where an extra cannot.
    """

    code = "missing_extra"

    def __init__(self, what: str, extra: str, command: str = ""):
        command = command or f"pip install 'envport[{extra}]'"
        super().__init__(f"{what} needs a package that is not installed: {command}")
        self.extra = extra


class InvalidAccess(ConfigurationError):
    """The token settings are unusable, or would expose the gateway without tokens."""

    code = "invalid_access"


class RequestError(EnvportError):
    """A request that cannot be carried out. It has changed nothing."""

    code = "request_refused"


class InvalidRequest(RequestError):
    """A field of the request is malformed."""

    code = "invalid_request"


class UnknownEnvironment(RequestError):
    """The gateway serves no environment of that name."""

    code = "unknown_environment"


class UnknownTask(RequestError):
    """The environment has no such split or task."""

    code = "unknown_task"


class UnknownEpisode(RequestError):
    """The handle is unknown, expired, closed, or belongs to another principal. The error does not say which."""

    code = "unknown_episode"

    def __init__(self, message: str = ""):
        super().__init__(
            message
            or "This episode does not exist, has expired, was closed, or is not yours. "
            "Start a new one: call start_episode where the tool list has it, or ask whoever gave you this "
            "address to open another episode."
        )


class EpisodeOver(RequestError):
    """The episode has ended and takes no more calls.

    Args:
        message: How it ended.
        fault: Who owns the fault that ended it, if there was one; see `envport.types.FaultOwner`.
        reason: Why a fault ended it; see `envport.types.Reason`. `None` if it is not known.
    """

    code = "episode_over"

    def __init__(self, message: str = "", fault: _Owner | None = None, reason: str | None = None):
        super().__init__(message)
        self.fault: _Owner | None = fault
        self.reason: str | None = reason


class EpisodeBusy(RequestError):
    """An earlier call of the episode is still running, although its caller has left. This call was not played."""

    code = "episode_busy"


class UnknownTool(RequestError):
    """The environment has no tool of that name."""

    code = "unknown_tool"


class InvalidArguments(RequestError):
    """The arguments of a tool call break the tool's schema; the environment was not touched."""

    code = "invalid_arguments"


class AtCapacity(RequestError):
    """There is no room for another episode now. An environment may raise it in `reset`, for a system that it uses.

    Args:
        message: What is full.
        retry_after: Seconds to wait before trying again.
        limit: The limit that was reached: `total`, `principal` or `environment`. Used for metrics, never sent to
            clients.
    """

    code = "at_capacity"

    def __init__(self, message: str, retry_after: float = 1.0, *, limit: str = "total"):
        super().__init__(message)
        self.retry_after = retry_after
        self.limit = limit


class Draining(AtCapacity):
    """The gateway is being stopped. Open episodes can still be played; new ones are refused.

    Args:
        message: What is happening.
        retry_after: Seconds to wait before trying again. Behind a load balancer, another gateway answers by then.
    """

    code = "draining"

    def __init__(self, message: str = "", retry_after: float = 5.0):
        super().__init__(
            message or "This gateway is being stopped and takes no new episodes. Try again in a while, or elsewhere.",
            retry_after,
            limit=self.code,
        )


class Resuming(AtCapacity):
    """The episode is being put back after a restart of the gateway. The call was not played.

    Args:
        message: What is happening.
        retry_after: Seconds to wait before trying again.
    """

    code = "resuming"

    def __init__(self, message: str = "", retry_after: float = 1.0):
        super().__init__(
            message
            or "The gateway was restarted, and this episode is being put back. This call was not played: send it again "
            "in a while.",
            retry_after,
            limit=self.code,
        )


class StoreUnavailable(AtCapacity):
    """The trajectory store cannot be written to or read now, for example because the disk is full.

    Args:
        message: What is wrong.
        retry_after: Seconds to wait before trying again.
    """

    code = "store_unavailable"

    def __init__(self, message: str, retry_after: float = 5.0):
        super().__init__(message, retry_after, limit=self.code)


class Unauthenticated(RequestError):
    """The request carries no valid token."""

    code = "unauthenticated"


class PermissionDenied(RequestError):
    """The token is valid, but its scopes do not cover the request."""

    code = "permission_denied"


class EpisodeFailed(EnvportError):
    """A fault that is not the player's ended the episode. This is never to be scored as a reward of zero.

    Args:
        message: What happened.
        fault: Who owns the fault; see `envport.types.FaultOwner`.
        reason: Why it ended; see `envport.types.Reason`. `None` if it is not known.
    """

    code = "episode_failed"

    def __init__(
        self,
        message: str = "",
        fault: Literal["environment", "infrastructure"] = "environment",
        reason: str | None = None,
    ):
        super().__init__(message)
        self.fault: Literal["environment", "infrastructure"] = fault
        self.reason: str | None = reason


class WorkerLost(EnvportError):
    """The worker of an environment is gone: its process died, or it was stopped because it exceeded a limit.

    Args:
        message: What happened, for people to read. It contains no internals of the environment.
        reason: Why the worker is gone, for the episode's outcome.
        fault: Who owns the loss; see `envport.types.FaultOwner`.
        signal_name: The signal that ended the process, such as `SIGSEGV`, if there was one.
        stderr: The end of the process's standard error. Written to the log, never sent to clients.
    """

    code = "worker_lost"

    def __init__(
        self,
        message: str,
        reason: Literal["worker_lost", "deadline", "out_of_memory"] = "worker_lost",
        *,
        fault: _Owner = "environment",
        signal_name: str | None = None,
        stderr: str = "",
    ):
        super().__init__(message)
        self.fault: _Owner = fault
        self.reason: Literal["worker_lost", "deadline", "out_of_memory"] = reason
        self.signal_name = signal_name
        self.stderr = stderr


class CallerLeft(EnvportError):
    """The client disconnected before it got its answer. Nobody reads this error."""

    code = "caller_left"

    def __init__(self, message: str = ""):
        super().__init__(message or "The client disconnected.")


class GatewayUnreachable(EnvportError):
    """The client got no usable answer: no connection, a time-out, or something that is not a gateway."""

    code = "gateway_unreachable"


def _tree(root: type[EnvportError]) -> dict[str, type[EnvportError]]:
    found = {root.code: root}
    for child in root.__subclasses__():
        found = _tree(child) | found
    return found


def error_fields(error: EnvportError) -> dict[str, Any]:
    """The fields with which a gateway reports an error, in every protocol; `error_from_code` reads them.

    Args:
        error: The error.
    """
    fields: dict[str, Any] = {"code": error.code, "message": str(error)}
    if isinstance(error, AtCapacity):
        fields["retry_after"] = error.retry_after
    if isinstance(error, EpisodeFailed | EpisodeOver) and error.fault is not None:
        fields["fault"] = error.fault
        if error.reason is not None:
            fields["reason"] = error.reason
    return fields


def error_from_code(code: str, message: str, **fields: Any) -> EnvportError:
    """Build the error that a gateway reported.

    Args:
        code: The `code` of the error's class; an unknown one gives a plain `RequestError`.
        message: The gateway's message.
        **fields: The other fields of the error. `retry_after` and `limit` are those of `AtCapacity`, `fault` and
            `reason` those of `EpisodeFailed` and `EpisodeOver`.
    """
    cls = _tree(EnvportError).get(code, RequestError)
    if cls is AtCapacity:
        return AtCapacity(message, float(fields.get("retry_after", 1.0)), limit=fields.get("limit", "total"))
    if issubclass(cls, AtCapacity):
        return cls(message, float(fields.get("retry_after", 1.0)))
    if cls is EpisodeOver:
        return EpisodeOver(message, fields.get("fault"), fields.get("reason"))
    if cls is EpisodeFailed:
        owner = "infrastructure" if fields.get("fault") == "infrastructure" else "environment"
        return EpisodeFailed(message, owner, fields.get("reason"))
    if cls is MissingExtra:
        return ConfigurationError(message)
    return cls(message)
