"""What a tool or a prompt of an Open Reward Standard server shows, and what it is worth."""

from __future__ import annotations

import base64
import binascii
from typing import Any, NoReturn, cast

from envport import Observation, Step, ToolError, UpstreamLost
from envport.blocks import text_block
from envport_envs.ors.server import WHAT
from envport_envs.upstream.faults import reward_of

__all__ = ["DETAILS", "shown", "step_of"]

DETAILS = "ors/details"
"""Key in the `info` of a step: the `detail` of each block, `None` for a block without one."""

_FINISHED = "episode_finished"


def shown(blocks: Any) -> Observation:
    """Blocks as their player sees them.

    Raises:
        UpstreamLost: They are no blocks of the standard.
    """
    if not isinstance(blocks, list):
        raise _wrong("has no blocks")
    return Observation(content=tuple(_block(block) for block in cast("list[Any]", blocks)))


def step_of(answer: Any) -> Step[Observation]:
    """The answer to a call of a tool.

    Raises:
        ToolError: The call was refused. The player reads why, and the episode goes on.
        UpstreamLost: It is no answer of the standard, or the server has ended the episode before.
    """
    said = _object(answer, "the answer")
    if said.get("ok") is False:
        _refused(said)
    if said.get("ok") is not True:
        raise _wrong(f"has {said.get('ok')!r} as 'ok', which is neither true nor false")
    output = _object(said.get("output"), "'output'")
    finished: Any = output.get("finished", False)
    if not isinstance(finished, bool):
        raise _wrong(f"has {finished!r} as 'finished', which is neither true nor false")
    metadata: Any = output.get("metadata")
    info = dict(_object({} if metadata is None else metadata, "'metadata'"))
    observation = shown(output.get("blocks"))
    details = [cast("dict[str, Any]", block).get("detail") for block in output["blocks"]]
    if any(details):
        info[DETAILS] = details
    return Step(observation, reward=reward_of(output.get("reward"), WHAT), terminated=finished, info=info)


def _refused(said: dict[str, Any]) -> NoReturn:
    error, reason = said.get("error"), said.get("reason")
    if not isinstance(error, str):
        raise _wrong("refuses a call without a word")
    if reason == _FINISHED:
        # The reward was in an answer that never came.
        raise UpstreamLost(f"the {WHAT} says that the episode has finished, and has not said so before")
    raise ToolError(error or "The call was refused.")


def _block(block: Any) -> dict[str, Any]:
    found = _object(block, "a block")
    match found:
        case {"type": "text", "text": str(text)}:
            return text_block(text)
        case {"type": "image", "data": str(data), "mimeType": str(kind)} if kind.startswith("image/"):
            return _image(data, kind)
        case _:
            raise _wrong(f"has a block of the type {found.get('type')!r}, which is neither text nor an image")


def _image(data: str, kind: str) -> dict[str, Any]:
    try:
        base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise _wrong("has an image that is no base64") from None
    return {"type": "image", "data": data, "mimeType": kind}


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _wrong(f"has something else than an object as {what}")
    return cast("dict[str, Any]", value)


def _wrong(what: str) -> UpstreamLost:
    return UpstreamLost(f"the {WHAT}'s answer {what}")
