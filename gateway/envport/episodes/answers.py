"""Answers to tool calls as MCP results, in wire form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from envport.blocks import ContentBlock, joined, text_block, text_of
from envport.episodes.play import CallResult
from envport.errors import EnvportError, error_fields
from envport.tools.schema import ToolSpec

__all__ = ["tool_error", "tool_result"]

_FIRST_OBSERVATION = "envport/first_observation"


def tool_result(
    result: CallResult, before: Sequence[ContentBlock] = (), tool: ToolSpec | None = None
) -> dict[str, Any]:
    """The MCP result of a tool call.

    Args:
        result: The result of the call.
        before: Blocks to put in front, if the call also started the episode.
        tool: The tool, in that case.
    """
    wire: dict[str, Any] = {"content": [*_introduced(before, result.observation.content)]}
    if (data := result.observation.structured_content) is not None:
        # Claude Code and others show their model only the structured content, if there is any.
        told = before if tool is not None and tool.more_keys else ()
        more = {_FIRST_OBSERVATION: "\n\n".join(map(text_of, told))} if told else {}
        wire["structuredContent"] = {**more, **data}
    wire["isError"] = result.is_error
    wire["resultType"] = "complete"
    meta: dict[str, Any] = {
        "envport/step": result.step,
        "envport/terminated": result.terminated,
        "envport/truncated": result.truncated,
    }
    if result.outcome is not None:
        meta["envport/outcome"] = result.outcome.reason
        if result.outcome.fault is not None:
            meta["envport/fault"] = result.outcome.fault
        if result.outcome.lost:
            # Clients without `envport/fault` read this one.
            meta["envport/infrastructure"] = True
    # One protocol era drops null values from `_meta`. So both omit the key if there is no reward.
    if result.reward_in_meta and result.reward is not None:
        meta["envport/reward"] = result.reward
    wire["_meta"] = meta
    return wire


def tool_error(error: EnvportError, before: Sequence[ContentBlock] = ()) -> dict[str, Any]:
    """A tool error for the model to read. The message says what was wrong and what to do next."""
    fields = error_fields(error)
    meta = {"envport/error": error.code}
    if "fault" in fields:
        meta["envport/fault"] = fields["fault"]
        if "reason" in fields:
            meta["envport/outcome"] = fields["reason"]
    return {
        "content": [*_introduced(before, [text_block(str(error))])],
        "isError": True,
        "resultType": "complete",
        "_meta": meta,
    }


def _introduced(before: Sequence[ContentBlock], reply: Sequence[ContentBlock]) -> Sequence[ContentBlock]:
    return joined([*before, text_block("The result of this call:"), *reply]) if before else reply
