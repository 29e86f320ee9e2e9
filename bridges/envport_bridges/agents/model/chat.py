"""The interface between conversations and token ids: a model's chat template and the parser of its turns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

__all__ = ["CannotRender", "ChatFormat"]


class CannotRender(Exception):
    """The model's chat template cannot show a conversation. The message is for people."""


class ChatFormat(Protocol):
    """How a model's conversations are written as ids. Called from one thread only."""

    @property
    def end_ids(self) -> frozenset[int]:
        """The ids that end a turn."""
        ...

    @property
    def most_ids(self) -> int:
        """How many ids the model can see at once."""
        ...

    def render(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> list[int]:
        """The ids of a conversation, up to where the model's turn begins.

        Raises:
            CannotRender: The chat template refuses it.
        """
        ...

    def following(
        self, message: Mapping[str, Any], later: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
    ) -> tuple[int | None, list[int]] | None:
        """The ids that follow a turn of the model.

        Args:
            message: The turn. Only its shape matters: whether it calls tools, and which.
            later: The messages after it.
            tools: The tools that the model is shown.

        Returns:
            The id that ends a turn (`None` if the template has none), and the ids after it up to where the model's
            next turn begins; `None` if the template writes what came before in another way because of what follows.

        Raises:
            CannotRender: The chat template refuses it.
        """
        ...

    def read(self, ids: Sequence[int], prefix: Sequence[int], tools: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        """A turn as a message: `content`, and where there are any `reasoning_content` and `tool_calls`.

        Args:
            ids: The ids of the turn.
            prefix: The ids of its context.
            tools: The tools that the model was shown.
        """
        ...

    def text(self, ids: Sequence[int]) -> str:
        """The text of ids, without special tokens."""
        ...
