"""What a player is told of a new episode, in MCP's wire form."""

from __future__ import annotations

from typing import Any

from envport.blocks import ContentBlock, joined, text_block
from envport.episodes import Opening
from envport.types import Observation

__all__ = ["opening_blocks", "prompt_messages"]


def opening_blocks(opening: Opening, idle_seconds: float) -> list[ContentBlock]:
    """The content for a player that has started an episode: the handle, the prompt and the first observation.

    They are one block of text, unless the observation has images or the like. There is no structured content, because
    clients that show it to their model hide the text.
    """
    lines = [
        f"episode_id: {opening.handle}",
        f"Pass this episode_id in every call. The episode expires after {idle_seconds / 60:g} minutes without a call.",
    ]
    if opening.spec.tools_vary:
        callable_here = ", ".join(name for name in opening.tools.tools if name in opening.spec.tools)
        lines.append(f"Of the tools listed here, this episode has: {callable_here or 'none'}.")
    blocks = [text_block("\n".join(lines))]
    if opening.prompt:
        blocks.append(text_block(opening.prompt))
    return joined([*blocks, *opening.observation.content])


def prompt_messages(prompt: str, first: Observation | None) -> list[dict[str, Any]]:
    """An MCP prompt that tells a model what to do, with the first observation if there is one."""
    blocks = [text_block(prompt)] if prompt else []
    if first is not None:
        blocks.extend(first.content)
    return [{"role": "user", "content": block} for block in blocks]
