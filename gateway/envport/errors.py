"""The errors of envport, named by the boundary that was crossed.

    EnvportError
    ├── ConfigurationError          what was asked to be served cannot be
    │   ├── EnvironmentNotFound     nothing of that name, module or file
    │   ├── InvalidEnvironment      the class breaks the authoring contract
    │   ├── InvalidOption           a constructor option is unknown or has a bad value
    │   ├── MissingExtra            an optional package is not installed
    │   └── InvalidAccess           the token settings are unusable or unsafe
    ├── RequestError                the request cannot be carried out; nothing was changed
    │   ├── InvalidRequest          a field is malformed
    │   ├── UnknownEnvironment      the gateway serves no environment of that name
    │   ├── UnknownTask             no such split or task
    │   ├── UnknownEpisode          unknown, expired, closed, or somebody else's
    │   ├── EpisodeOver             the episode has ended
    │   ├── UnknownTool             the environment has no tool of that name
    │   ├── InvalidArguments        the tool's arguments break its schema
    │   ├── AtCapacity              no room now; says when to try again
    │   │   └── Draining            the gateway is being stopped and takes no new episodes
    │   ├── Unauthenticated         no valid token
    │   └── PermissionDenied        the token's scopes do not cover this
    ├── EpisodeFailed               the environment broke; never a reward of zero
    ├── WorkerLost                  what ran the environment is gone; inside the gateway only
    ├── GatewayUnreachable          the client got no usable answer from the gateway
    ├── ToolError                   raised by an environment: a message for whoever plays it
    └── UpstreamLost                raised by an environment: what it adapts has failed

Each class has a `code`, which travels over HTTP, so that the client raises the same class as the gateway.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

__all__ = [
    "AtCapacity",
    "ConfigurationError",
    "Draining",
    "EnvironmentNotFound",
    "EnvportError",
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
    "ToolError",
    "Unauthenticated",
    "UnknownEnvironment",
    "UnknownEpisode",
    "UnknownTask",
    "UnknownTool",
    "UpstreamLost",
    "WorkerLost",
    "error_from_code",
]


class EnvportError(Exception):
    """Base class of every error that envport raises on purpose."""

    code: ClassVar[str] = "error"

    @property
    def message(self) -> str:
        """What went wrong and what is allowed, in words for the person or model that caused it."""
        return str(self)


class ToolError(EnvportError):
    """Raised by an environment's tool to tell the player what went wrong; the episode goes on.

    Raised by `reset`, it tells whoever opens the episode why it cannot begin so, such as what is wrong with the task.
    """

    code = "tool_error"


class UpstreamLost(EnvportError):
    """Raised by an environment's tool or `reset`: what it adapts has failed, such as a server or a browser.

    The episode ends as failed, reason `upstream`, which is a fault and never a reward of zero. The message, and what
    caused the error, go to the log and to nobody else.
    """

    code = "upstream_lost"


class ConfigurationError(EnvportError):
    """What was asked to be served cannot be; the command line exits with 2."""

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


class MissingExtra(ConfigurationError):
    """An optional package is missing.

    Args:
        what: What cannot be used without it.
        extra: The extra of the `envport` distribution that installs it.
    """

    code = "missing_extra"

    def __init__(self, what: str, extra: str):
        super().__init__(f"{what} needs a package that is not installed: pip install 'envport[{extra}]'")
        self.extra = extra


class InvalidAccess(ConfigurationError):
    """The token settings are unusable, or would expose the gateway without tokens."""

    code = "invalid_access"


class RequestError(EnvportError):
    """A request that cannot be carried out; nothing was changed by it."""

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
    """The handle is unknown, expired, closed, or belongs to another principal: which, is not said."""

    code = "unknown_episode"

    def __init__(self, message: str = ""):
        super().__init__(
            message
            or "This episode does not exist, has expired, was closed, or is not yours. "
            "Start a new one: call start_episode where the tool list has it, or ask whoever gave you this "
            "address to open another episode."
        )


class EpisodeOver(RequestError):
    """The episode has ended and takes no more calls."""

    code = "episode_over"


class UnknownTool(RequestError):
    """The environment has no tool of that name."""

    code = "unknown_tool"


class InvalidArguments(RequestError):
    """The arguments of a tool call break the tool's schema; the environment was not touched."""

    code = "invalid_arguments"


class AtCapacity(RequestError):
    """There is no room for another episode now.

    Args:
        message: What is full.
        retry_after: Seconds after which trying again is sensible.
        limit: The limit that was reached: `total`, that of the `principal` or of the `environment`; for counting, never
            for the wire.
    """

    code = "at_capacity"

    def __init__(self, message: str, retry_after: float = 1.0, *, limit: str = "total"):
        super().__init__(message)
        self.retry_after = retry_after
        self.limit = limit


class Draining(AtCapacity):
    """The gateway is being stopped: the episodes that run are played on, new ones are not taken.

    Args:
        message: What is going on.
        retry_after: Seconds after which trying again is sensible: behind a balancer another gateway answers by then.
    """

    code = "draining"

    def __init__(self, message: str = "", retry_after: float = 5.0):
        super().__init__(
            message or "This gateway is being stopped and takes no new episodes. Try again in a while, or elsewhere.",
            retry_after,
            limit=self.code,
        )


class Unauthenticated(RequestError):
    """The request carries no valid token."""

    code = "unauthenticated"


class PermissionDenied(RequestError):
    """The token is valid, but its scopes do not cover the request."""

    code = "permission_denied"


class EpisodeFailed(EnvportError):
    """The environment broke while serving the request. This is never to be scored as a reward of zero."""

    code = "episode_failed"


class WorkerLost(EnvportError):
    """What ran an environment is gone: its process died, or it was stopped for what it took.

    Args:
        message: What happened, for a person; holds nothing of the environment's inside.
        reason: Why it is gone, as the episode's outcome says it.
        signal_name: The signal that ended the process, such as `SIGSEGV`, if one did.
        stderr: The last of what the process wrote to standard error; for the log, never for the wire.
    """

    code = "worker_lost"

    def __init__(
        self,
        message: str,
        reason: Literal["worker_lost", "deadline", "out_of_memory"] = "worker_lost",
        *,
        signal_name: str | None = None,
        stderr: str = "",
    ):
        super().__init__(message)
        self.reason: Literal["worker_lost", "deadline", "out_of_memory"] = reason
        self.signal_name = signal_name
        self.stderr = stderr


class GatewayUnreachable(EnvportError):
    """The client got no usable answer: no connection, a time-out, or something that is not a gateway."""

    code = "gateway_unreachable"


def _tree(root: type[EnvportError]) -> dict[str, type[EnvportError]]:
    found = {root.code: root}
    for child in root.__subclasses__():
        found = _tree(child) | found
    return found


def error_from_code(code: str, message: str, **fields: Any) -> EnvportError:
    """Build the error that a gateway reported.

    Args:
        code: The `code` of the error's class; an unknown one gives a plain `RequestError`.
        message: The gateway's message.
        **fields: What else the gateway said; `retry_after` and `limit` belong to `AtCapacity`.
    """
    cls = _tree(EnvportError).get(code, RequestError)
    if cls is AtCapacity:
        return AtCapacity(message, float(fields.get("retry_after", 1.0)), limit=fields.get("limit", "total"))
    if issubclass(cls, AtCapacity):
        return cls(message, float(fields.get("retry_after", 1.0)))
    if cls is MissingExtra:
        return ConfigurationError(message)
    return cls(message)
