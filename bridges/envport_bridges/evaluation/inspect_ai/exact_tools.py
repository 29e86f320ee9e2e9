"""An environment's tools for Inspect, with exactly the schemas that the gateway lists.

Inspect's own classes for tool schemas support a part of JSON Schema and drop the rest, such as references and bounds.
Model providers get a schema by dumping these classes. So the subclasses here dump the original schema.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from inspect_ai.tool import ContentAudio, ContentImage, ContentText, ToolDef, ToolError, ToolInfo, ToolParam, ToolParams
from pydantic import Field, PrivateAttr, SerializeAsAny, ValidationError, model_serializer

from envport.blocks import ContentBlock, text_of
from envport.errors import GatewayUnreachable
from envport_bridges.agents.programs.seat import Seat

__all__ = ["ExactParams", "ExactTool", "playable", "shown", "tool_content"]

Content = ContentText | ContentImage | ContentAudio


class ExactParams(ToolParams):
    """Tool parameters that dump their original schema."""

    _schema: dict[str, Any] = PrivateAttr(default_factory=dict[str, Any])

    @classmethod
    def of(cls, schema: dict[str, Any]) -> ExactParams:
        """The parameters of a tool.

        Args:
            schema: The tool's input schema.
        """
        properties = {name: _param(part) for name, part in schema.get("properties", {}).items()}
        params = cls(properties=properties, required=schema.get("required", []))
        params._schema = schema
        return params

    @model_serializer(mode="plain")
    def _dump(self) -> dict[str, Any]:
        return deepcopy(self._schema)


def _param(schema: Any) -> ToolParam:
    try:
        return ToolParam.model_validate(schema)
    except ValidationError:
        # Inspect's class cannot represent this schema. It is used for display only; the dump has the whole schema.
        return ToolParam()


class ExactTool(ToolInfo):
    """A tool whose parameters dump their original schema."""

    parameters: SerializeAsAny[ToolParams] = Field(default_factory=ToolParams)


def shown(tool: dict[str, Any]) -> ExactTool:
    """A tool as the model sees it.

    Args:
        tool: The tool as MCP lists it.
    """
    params = ExactParams.of(tool["inputSchema"])
    return ExactTool(name=tool["name"], description=tool.get("description", ""), parameters=params)


def playable(tool: dict[str, Any], seat: Seat) -> ToolDef:
    """A tool as Inspect calls it. The gateway validates the arguments, so the model reads the gateway's messages."""
    return ToolDef(
        _Called(seat, tool["name"]).call,
        name=tool["name"],
        description=tool.get("description", ""),
        parameters=ToolParams(additionalProperties=True),
        # No limit on the output, as in the training bridge.
        max_output=0,
    )


class _Called:
    def __init__(self, seat: Seat, name: str):
        self._seat = seat
        self._name = name

    async def call(self, /, **kwargs: Any) -> list[Content]:
        try:
            reply = await self._seat.call(self._name, kwargs)
        except (OSError, UnicodeError) as error:
            # Convert the error: Inspect would show it to the model as the model's own mistake.
            raise GatewayUnreachable(f"no answer to a call: {error}") from error
        if reply.is_error:
            raise ToolError(reply.text)
        return [tool_content(block) for block in reply.content]


def tool_content(block: ContentBlock) -> Content:
    """A content block as Inspect shows it to a model."""
    kind, mime = block.get("type"), str(block.get("mimeType", ""))
    if kind == "image":
        return ContentImage(image=f"data:{mime};base64,{block['data']}")
    if kind == "audio" and mime in ("audio/wav", "audio/mpeg"):
        return ContentAudio(
            audio=f"data:{mime};base64,{block['data']}", format="wav" if mime.endswith("wav") else "mp3"
        )
    return ContentText(text=text_of(block))
