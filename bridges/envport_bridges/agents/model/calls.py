"""What was sampled for a session: a tree of turns, each with the ids of its context.

A turn whose request extends the conversation of an earlier one is its child, and its context begins with the very ids
of that turn. So every path from a root to a leaf is one sequence of ids, in which every sampled token stands behind
exactly the ids that it was sampled after.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from envport_bridges.agents.apis.requests import ModelReply, ModelRequest

__all__ = ["CallChain", "CallTree", "Conversation", "ModelCall"]

_MessageKey = tuple[Any, ...]


def _message_key(message: Mapping[str, Any]) -> _MessageKey:
    """Equal for two messages that say the same, whatever an SDK added, dropped or reordered on the way."""
    calls = cast("Sequence[Mapping[str, Any]]", message.get("tool_calls") or ())
    written = tuple((call["function"]["name"], _arguments_key(call["function"]["arguments"])) for call in calls)
    return message["role"], str(message.get("content") or "").strip(), written, message.get("tool_call_id")


def _arguments_key(arguments: Any) -> str:
    """Equal for what is the same to an agent in JavaScript: it sends 1.0 back as 1, and infinity as null."""
    return _sorted(json.loads(json.dumps(arguments), parse_int=float, parse_constant=lambda _: None))


def _sorted(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


@dataclass(frozen=True)
class Conversation:
    """What the model is asked to continue, in a form that can be compared.

    Attributes:
        messages: The messages.
        tools: The tools that it is shown.
    """

    messages: tuple[_MessageKey, ...]
    tools: str

    @classmethod
    def of(cls, request: ModelRequest) -> Conversation:
        """The conversation of a request."""
        return cls(tuple(map(_message_key, request.messages)), _sorted(list(request.tools)))

    def then(self, message: Mapping[str, Any]) -> Conversation:
        """The same with one more message."""
        return Conversation((*self.messages, _message_key(message)), self.tools)

    def begins(self, other: Conversation) -> bool:
        """Whether another conversation has the same tools and begins with the same messages."""
        return self.tools == other.tools and self.messages == other.messages[: len(self.messages)]


@dataclass(eq=False)
class ModelCall:
    """A turn that was sampled.

    Attributes:
        conversation: The conversation with the turn.
        request: What was asked.
        message: The turn as a message of a chat template.
        reply: What was answered.
        prompt_ids: The ids of the context. They begin with the ids of `parent`, if there is one.
        completion_ids: The ids that were sampled.
        logprobs: Their log probabilities, if the sampler knows them.
        parent: The turn that this one extends.
        seen: Whether an answer reached the agent, as far as is known: it left no client that had asked.
    """

    conversation: Conversation
    request: ModelRequest
    message: Mapping[str, Any]
    reply: ModelReply
    prompt_ids: list[int]
    completion_ids: list[int]
    logprobs: list[float] | None = None
    parent: ModelCall | None = None
    seen: bool = True

    @property
    def ids(self) -> list[int]:
        """The context and the turn."""
        return self.prompt_ids + self.completion_ids

    @property
    def path(self) -> list[ModelCall]:
        """The turns from the first of its conversation to this one."""
        turns: list[ModelCall] = []
        turn: ModelCall | None = self
        while turn is not None:
            turns.append(turn)
            turn = turn.parent
        return turns[::-1]

    @property
    def context_start(self) -> int:
        """How many ids its conversation had before the first turn."""
        return len(self.path[0].prompt_ids)


@dataclass(frozen=True)
class CallChain:
    """A path through the tree as one sequence to train on.

    Attributes:
        calls: Its turns.
        prompt_ids: The context of the first.
        completion_ids: All that follows: sampled tokens, and what the agent put between them.
        mask: 1 for each id that was sampled and is not trained in an earlier chain, 0 for all others.
        logprobs: Log probability of each id, 0 where it was not sampled; `None` if the sampler knows none.
    """

    calls: tuple[ModelCall, ...]
    prompt_ids: list[int]
    completion_ids: list[int]
    mask: list[int]
    logprobs: list[float] | None

    @property
    def trained(self) -> int:
        """How many ids are trained."""
        return sum(self.mask)

    @classmethod
    def of(cls, path: Sequence[ModelCall], trained: Iterable[ModelCall]) -> CallChain:
        """The sequence of a path.

        Args:
            path: Its turns.
            trained: Turns that are trained elsewhere.
        """
        elsewhere = set(trained)
        prompt = path[0].prompt_ids
        completion: list[int] = []
        mask: list[int] = []
        logprobs: list[float] | None = [] if all(call.logprobs is not None for call in path) else None
        for call in path:
            between = call.prompt_ids[len(prompt) + len(completion) :]
            completion += [*between, *call.completion_ids]
            mask += [0] * len(between) + [int(call not in elsewhere)] * len(call.completion_ids)
            if logprobs is not None:
                logprobs += [0.0] * len(between) + (call.logprobs or [])
        return cls(tuple(path), list(prompt), completion, mask, logprobs)


@dataclass
class CallTree:
    """The turns of a session, in the order in which they were sampled.

    Attributes:
        calls: The turns.
        most: How many are kept; all of them if not given.
    """

    calls: list[ModelCall] = field(default_factory=list[ModelCall])
    most: int | None = None

    def add(self, call: ModelCall) -> None:
        """Record a turn."""
        self.calls.append(call)
        if self.most is not None and len(self.calls) > self.most:
            del self.calls[0]

    def extended(self, conversation: Conversation) -> ModelCall | None:
        """The longest turn that a conversation extends; the latest of several."""
        found = [call for call in self.calls if call.conversation.begins(conversation)]
        return max(reversed(found), key=lambda call: len(call.conversation.messages), default=None)

    def same(self, conversation: Conversation, request: ModelRequest) -> ModelCall | None:
        """The latest turn that the same request was answered with."""
        for call in reversed(self.calls):
            asked = call.conversation
            if (
                asked.messages[:-1] == conversation.messages
                and asked.tools == conversation.tools
                and (call.request.max_tokens, call.request.stop) == (request.max_tokens, request.stop)
            ):
                return call
        return None

    @property
    def sampled(self) -> int:
        """How many tokens were sampled in turns that an agent saw."""
        return sum(len(call.completion_ids) for call in self._seen)

    @property
    def chains(self) -> list[CallChain]:
        """A chain for each leaf. What two chains share is trained in the earlier one.

        The first is the one that did the work: of those that were shown tools, if there are any, the one with the most
        sampled tokens. Turns that no agent saw are in none.
        """
        seen = self._seen
        parents = {call.parent for call in seen}
        paths = sorted((call.path for call in seen if call not in parents), key=_work, reverse=True)
        trained: set[ModelCall] = set()
        chains: list[CallChain] = []
        for path in paths:
            chains.append(CallChain.of(path, trained))
            trained.update(path)
        return chains

    @property
    def _seen(self) -> list[ModelCall]:
        return [call for call in self.calls if call.seen]


def _work(path: Sequence[ModelCall]) -> tuple[bool, int]:
    return bool(path[-1].request.tools), sum(len(call.completion_ids) for call in path)
