"""The messages of NeMo Gym: what an agent sends to a resources server, and what it is answered.

The protocol is that of NeMo Gym 0.4 and 0.5.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Annotated, Any, Literal, TypeVar, cast

from pydantic import BaseModel, Field, ValidationError
from pydantic_core import from_json

from envport.blocks import ContentBlock, text_of
from envport.episodes import EpisodeStart, TaskFields, told_of_fields
from envport.errors import InvalidRequest
from envport.tools.toolset import Toolset

__all__ = [
    "RESERVED",
    "ResponsesRequest",
    "RowChoice",
    "SeedRequest",
    "VerifyRequest",
    "fields_of",
    "function_tools",
    "input_content",
    "read_object",
    "refuse_foreign_tools",
    "shown_text",
]

RequestT = TypeVar("RequestT", bound=BaseModel)

RESERVED = frozenset({"seed_session", "verify", "aggregate_metrics", "reverify_mode", "mcp", "ng-rollout"})
"""Paths of the protocol, which no tool can have."""


class RowChoice(TaskFields):
    """What a row says for envport, in `verifier_metadata.envport`: the task, and what it was when the row was made."""

    environment: Annotated[str | None, Field(description="Name of the environment.")] = None
    task_id: Annotated[str | None, Field(description="Id of the task, which is checked.")] = None
    fingerprint: Annotated[str | None, Field(description="Fingerprint of the tools, which is checked.")] = None
    labels: Annotated[dict[str, str], Field(default_factory=dict, description="Labels of the episode.")]
    on_loss: Annotated[
        Literal["error", "mask"], Field(description="What /verify answers for an episode that is lost.")
    ] = "error"

    def check(self, start: EpisodeStart) -> None:
        """Check that the task is still what it was when the row was made.

        Raises:
            InvalidRequest: The task or its tools are others by now.
        """
        found = start.task.id if start.task is not None else None
        if self.task_id is not None and found != self.task_id:
            raise InvalidRequest(
                f"this row is for the task {self.task_id!r}, and that place has {found!r} by now: make the rows again"
            )
        if self.fingerprint is not None and start.tools.fingerprint != self.fingerprint:
            raise InvalidRequest("the tools are not those that this row was made with: make the rows again")


class _Metadata(BaseModel):
    envport: RowChoice


class _RowTool(BaseModel):
    type: Literal["function"]
    name: str
    parameters: dict[str, Any] | None = None


class ResponsesRequest(BaseModel):
    """What the model is asked with, as far as this server reads it."""

    tools: list[_RowTool] | None = None


class SeedRequest(BaseModel):
    """A row, which begins a session. Fields of others are ignored."""

    responses_create_params: ResponsesRequest
    verifier_metadata: _Metadata


class VerifyRequest(SeedRequest):
    """A row with the trajectory of its agent."""

    response: dict[str, Any]


def read_object(body: bytes, what: str) -> dict[str, Any]:
    """Read a JSON object.

    Args:
        body: The JSON.
        what: What it is, for the error.

    Raises:
        InvalidRequest: It is none.
    """
    try:
        read = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise InvalidRequest(f"{what} has to be JSON: {error}") from None
    if type(read) is not dict:
        raise InvalidRequest(f"{what} has to be a JSON object")
    return cast("dict[str, Any]", read)


def fields_of(model: type[RequestT], body: Mapping[str, Any]) -> RequestT:
    """The fields of a request's body that this server reads.

    Raises:
        InvalidRequest: One is malformed.
    """
    try:
        return model.model_validate(body)
    except ValidationError as error:
        said = ((".".join(map(str, detail["loc"])) or "the body", detail["msg"]) for detail in error.errors())
        raise InvalidRequest(told_of_fields(said)) from None


def function_tools(listing: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Tools as the Responses API takes them, with the schemas that MCP lists.

    Args:
        listing: The tools as MCP lists them.
    """
    return [
        {
            "type": "function",
            "name": tool["name"],
            "description": tool.get("description") or "",
            # Copy the schema: the listing is shared, and whoever makes a row may change it.
            "parameters": deepcopy(tool["inputSchema"]),
            # The strict mode allows a part of JSON Schema only.
            "strict": False,
        }
        for tool in listing
    ]


def refuse_foreign_tools(params: ResponsesRequest, tools: Toolset) -> None:
    """Check that the tools of a row, if it has some, can be called at this server, and are those of the episode.

    Args:
        params: The row's `responses_create_params`.
        tools: The tools of the episode.

    Raises:
        InvalidRequest: One of them cannot be called, or has another schema.
    """
    known = {tool["name"]: tool["inputSchema"] for tool in tools.listing}
    for tool in params.tools or ():
        if tool.name in RESERVED:
            raise InvalidRequest(
                f"the tool {tool.name!r} cannot be called by POST, because the protocol has that path: make the rows "
                "--without-tools, and play over MCP"
            )
        if tool.name not in known or tool.parameters != known[tool.name]:
            raise InvalidRequest(f"the row's tool {tool.name!r} is not one of this task's tools: make the rows again")


def input_content(blocks: Sequence[ContentBlock]) -> str | list[dict[str, Any]]:
    """Content blocks as the content of an input message: text, or a list of texts and images."""
    if all(block.get("type") != "image" for block in blocks):
        return shown_text(blocks)
    return [
        {
            "type": "input_image",
            "image_url": f"data:{block['mimeType']};base64,{block['data']}",
            "detail": "auto",
        }
        if block.get("type") == "image"
        else {"type": "input_text", "text": text_of(block)}
        for block in blocks
    ]


def shown_text(blocks: Iterable[ContentBlock]) -> str:
    """Content blocks as text, for what takes only text."""
    return "\n".join(map(text_of, blocks))
