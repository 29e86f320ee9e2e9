"""The messages of the Open Reward Standard: what a client sends, and what it is answered.

The protocol is that of `openreward` 0.1.167.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, StrictInt, ValidationError, model_validator
from starlette.requests import Request
from starlette.responses import JSONResponse

from envport.blocks import ContentBlock, text_of
from envport.episodes import told_of_fields
from envport.errors import (
    AtCapacity,
    CallerLeft,
    Draining,
    EnvportError,
    EpisodeFailed,
    InvalidRequest,
    RequestError,
    UnknownEnvironment,
    UnknownEpisode,
    UnknownTask,
    error_fields,
)

__all__ = [
    "OrsCall",
    "OrsCreate",
    "OrsError",
    "OrsOverrides",
    "OrsRange",
    "OrsSplit",
    "OrsTask",
    "Refusal",
    "error_response",
    "ors_blocks",
    "output",
    "read_body",
    "refusal",
    "tools_answer",
]

Refusal = Literal["not_found", "input_validation", "episode_finished"]
"""Why a call was not played, in the protocol's words."""

ModelT = TypeVar("ModelT", bound=BaseModel)

_STATUS: dict[type[EnvportError], int] = {
    UnknownEnvironment: 404,
    UnknownTask: 400,
    InvalidRequest: 400,
    # The client takes it for the end of the session.
    UnknownEpisode: 410,
    AtCapacity: 503,
    RequestError: 400,
    CallerLeft: 499,
}
# A fault of the environment would come again, so that it is not tried again; the client tries 503 again.
_BROKEN, _AGAIN = 500, 503
_AGAIN_SECONDS = 2


class OrsError(EnvportError):
    """A request that the protocol has an HTTP status for.

    Args:
        status: The status.
        message: What was wrong, and what is allowed.
        starting: Whether the client is to ask again, because its episode is not open yet.
    """

    code = "ors_error"

    def __init__(self, status: int, message: str, *, starting: bool = False):
        super().__init__(message)
        self.status = status
        self.starting = starting


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class OrsSplit(_Body):
    """Names a split."""

    split: str


class OrsTask(OrsSplit):
    """Names a task."""

    index: StrictInt


class OrsRange(OrsSplit):
    """Names tasks as a slice of Python's."""

    start: StrictInt | None = None
    stop: StrictInt | None = None


class OrsOverrides(BaseModel):
    """Asks for variables of the environment's container. Other fields are ignored, as the protocol's server does."""

    env: dict[str, Any] | None = None


class OrsCreate(_Body):
    """What a session is to play."""

    env_name: str | None = None
    task_spec: dict[str, Any] | None = None
    split: str | None = None
    index: StrictInt | None = None
    toolset_name: str | None = None

    @model_validator(mode="after")
    def _one_task(self) -> OrsCreate:
        both = self.split is not None and self.index is not None
        if (self.split is None) != (self.index is None) or both == (self.task_spec is not None):
            raise ValueError("either task_spec is needed, or both split and index")
        return self


class OrsCall(_Body):
    """A tool call, or with `task_id` the question for the answer to one that was sent before."""

    name: str
    input: dict[str, Any]
    task_id: str | None = None


async def read_body(model: type[ModelT], request: Request) -> ModelT:
    """Read the body of a request.

    Raises:
        OrsError: It is malformed.
    """
    try:
        return model.model_validate_json(await request.body())
    except ValidationError as error:
        said = ((str((*detail["loc"], "the body")[0]), detail["msg"]) for detail in error.errors())
        raise OrsError(422, told_of_fields(said)) from None


def error_response(error: EnvportError) -> JSONResponse:
    """The HTTP answer for an error: the client shows its `detail`."""
    headers: dict[str, str] = {}
    starting = False
    if isinstance(error, OrsError):
        status, starting = error.status, error.starting
    elif isinstance(error, EpisodeFailed):
        status = _AGAIN if error.fault == "infrastructure" else _BROKEN
    else:
        status = next((_STATUS[base] for base in type(error).__mro__ if base in _STATUS), _BROKEN)
    if isinstance(error, AtCapacity):
        headers["Retry-After"] = str(math.ceil(error.retry_after))
        starting = not isinstance(error, Draining)
    elif status == _AGAIN:
        headers["Retry-After"] = str(_AGAIN_SECONDS)
    if starting:
        # The client waits for ten minutes, and not for three attempts: nothing was played, and a place becomes free.
        headers["X-Backend-State"] = "starting"
    return JSONResponse({"detail": str(error), "error": error_fields(error)}, status, headers)


def ors_blocks(blocks: Iterable[ContentBlock]) -> list[dict[str, Any]]:
    """Content blocks in the protocol's form, which has texts and images. Others become text."""
    return [
        {"type": "image", "data": block["data"], "mimeType": block["mimeType"], "detail": None}
        if block.get("type") == "image"
        else {"type": "text", "text": text_of(block), "detail": None}
        for block in blocks
    ]


def tools_answer(listing: Sequence[Mapping[str, Any]], terminal: str) -> dict[str, Any]:
    """The tools, with the schemas that MCP lists.

    Args:
        listing: The tools as MCP lists them.
        terminal: Name of the tool that a trainer calls when its agent has stopped.
    """
    return {
        "tools": [
            {"name": tool["name"], "description": tool.get("description") or "", "input_schema": tool["inputSchema"]}
            for tool in listing
        ],
        "terminal_tool": {
            "name": terminal,
            "arg": None,
            "description": "Ends the episode of an agent that has stopped, and gives its reward.",
        },
        "supports_score_group": False,
        "message_block_types": ["text", "image"],
    }


def output(
    blocks: Iterable[ContentBlock], metadata: Mapping[str, Any], reward: float | None, *, finished: bool
) -> dict[str, Any]:
    """The result of a call that was played."""
    told = {"blocks": ors_blocks(blocks), "metadata": metadata, "reward": reward, "finished": finished}
    return {"ok": True, "output": told}


def refusal(reason: Refusal, message: str) -> dict[str, Any]:
    """The result of a call that was not played."""
    return {"ok": False, "error": message, "reason": reason}
