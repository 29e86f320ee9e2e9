"""The context of a request: the recorded ids of the turn that it extends, and only what is new tokenized."""

from __future__ import annotations

from dataclasses import dataclass

from envport_bridges.agents.apis.requests import ModelRequest, RequestRefused
from envport_bridges.agents.model.calls import CallTree, Conversation, ModelCall
from envport_bridges.agents.model.chat import CannotRender, ChatFormat

__all__ = ["ContextLimits", "ModelContext", "context_of"]


@dataclass(frozen=True)
class ContextLimits:
    """How long a conversation may become.

    Attributes:
        following: Most ids after the first context of a conversation: what is sampled, and all that comes between.
            `None` for no limit but the model's.
    """

    following: int | None = None


@dataclass(frozen=True)
class ModelContext:
    """The context of a request.

    Attributes:
        conversation: The conversation that is asked to be continued.
        prompt_ids: Its ids.
        parent: The turn that it extends; `prompt_ids` begin with its ids.
        room: Most tokens that may be sampled, at least 1.
    """

    conversation: Conversation
    prompt_ids: list[int]
    parent: ModelCall | None
    room: int


def context_of(
    request: ModelRequest, conversation: Conversation, tree: CallTree, chat: ChatFormat, limits: ContextLimits
) -> ModelContext:
    """Find the context of a request.

    Raises:
        RequestRefused: There is no room for a turn, or the model's chat template cannot show the conversation.
    """
    if not request.messages or request.messages[-1].get("role") == "assistant":
        raise RequestRefused(
            400,
            "invalid_request_error",
            "the last message has to be of the user or a tool: a turn that was begun cannot be continued",
        )
    try:
        parent, ids = _ids_of(request, conversation, tree, chat)
    except CannotRender as error:
        raise RequestRefused(
            400, "invalid_request_error", f"the model's chat template cannot show this conversation: {error}"
        ) from error
    start = parent.context_start if parent is not None else len(ids)
    room = chat.most_ids - len(ids)
    if limits.following is not None:
        room = min(room, limits.following - (len(ids) - start))
    if room < 1:
        raise RequestRefused(400, "context_length_exceeded", _too_long(len(ids), start, chat.most_ids, limits))
    return ModelContext(conversation, ids, parent, min(room, request.max_tokens or room))


def _ids_of(
    request: ModelRequest, conversation: Conversation, tree: CallTree, chat: ChatFormat
) -> tuple[ModelCall | None, list[int]]:
    parent = tree.extended(conversation)
    if parent is not None:
        later = request.messages[len(parent.conversation.messages) :]
        following = chat.following(parent.message, later, request.tools)
        if following is not None:
            end, ids = following
            ended = bool(parent.completion_ids) and parent.completion_ids[-1] in chat.end_ids
            if ended and ids[:1] == parent.completion_ids[-1:]:
                # In some formats, a turn is ended by the id with which the next message begins.
                ids = ids[1:]
            return parent, [*parent.ids, *([] if ended or end is None else [end]), *ids]
    return None, chat.render(request.messages, request.tools)


def _too_long(length: int, start: int, most: int, limits: ContextLimits) -> str:
    if length >= most:
        return f"the conversation has {length} tokens, and the model's maximum context length is {most} tokens"
    return (
        f"the conversation has {length - start} tokens after its first context, and at most {limits.following} are "
        "allowed (in training, GRPOConfig(max_completion_length=...))"
    )
