"""What an agent asks of a model and what it is answered, whatever API it uses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

__all__ = ["FinishReason", "ModelApi", "ModelReply", "ModelRequest", "RequestRefused", "TokenUsage", "WrittenCall"]

FinishReason = Literal["stop", "length", "tool_calls"]
"""Why a turn ended: by itself or at a stop string, at its limit of tokens, or to call tools."""


class RequestRefused(Exception):
    """A request that the endpoint does not answer with a turn of the model.

    Args:
        status: HTTP status.
        code: Code for programs, as OpenAI's API has them, such as `context_length_exceeded`.
        message: Text for people: what was wrong, and what is allowed.
    """

    def __init__(self, status: int, code: str, message: str):
        super().__init__(message)
        self.status = status
        self.code = code


@dataclass(frozen=True)
class ModelRequest:
    """A request for the model's next turn.

    Attributes:
        messages: The conversation as chat templates take it. Each message has a `role` (`system`, `user`, `assistant`
            or `tool`) and a `content`, which is text. Messages of the assistant may have `tool_calls`, each
            `{"id", "type": "function", "function": {"name", "arguments"}}` with the arguments as an object (or as the
            text that was sent, if that is no JSON object). Messages of tools have the `tool_call_id` that they answer
            and, where it can be told from the call, the tool's `name`.
        tools: The tools, each `{"type": "function", "function": {"name", "description", "parameters"}}`.
        model: The name of the model that was asked for. The answer repeats it.
        max_tokens: Most tokens of the turn, if the agent says so.
        stop: Texts that end the turn; they are not part of it.
        stream: Whether the answer is streamed.
        ignored: Settings of the request that are not honoured, such as `temperature`, by their names in the API.
        extras: What the API needs to know again for its answer.
    """

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] = ()
    model: str = "policy"
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    stream: bool = False
    ignored: tuple[str, ...] = ()
    extras: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class WrittenCall:
    """A tool call that the model wrote.

    Attributes:
        id: Random text: agents merge or drop calls whose ids they have seen before.
        name: The tool.
        arguments: The arguments, as a JSON object.
    """

    id: str
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class TokenUsage:
    """Tokens of one request.

    Attributes:
        prompt: Tokens of the context.
        completion: Tokens that the model wrote.
        cached: How many of the context's tokens were taken over from an earlier request.
    """

    prompt: int
    completion: int
    cached: int = 0


@dataclass(frozen=True)
class ModelReply:
    """A turn of the model.

    Attributes:
        text: What it says.
        reasoning: What it thought before, if its chat template tells that apart.
        tool_calls: The tools that it calls.
        finish: Why the turn ended.
        stopped_by: The stop text that ended it.
        usage: Its tokens.
    """

    text: str
    finish: FinishReason
    usage: TokenUsage
    reasoning: str | None = None
    tool_calls: tuple[WrittenCall, ...] = ()
    stopped_by: str | None = None


class ModelApi(Protocol):
    """One of the APIs in which agents ask a model."""

    path: str
    """The path of its requests, such as `/v1/chat/completions`."""

    def read(self, body: Mapping[str, Any]) -> ModelRequest:
        """Read the body of a request.

        Raises:
            RequestRefused: It is not valid, or asks for what cannot be given, such as more than one answer.
        """
        ...

    def answer(self, request: ModelRequest, reply: ModelReply) -> dict[str, Any]:
        """The body of the answer. Its ids are random."""
        ...

    def events(self, request: ModelRequest, reply: ModelReply) -> Iterator[str]:
        """The answer as server-sent events, each as the text that is sent."""
        ...

    def error(self, refused: RequestRefused) -> dict[str, Any]:
        """The body that tells of a refusal."""
        ...
