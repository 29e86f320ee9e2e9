"""The fixtures of MCP's conformance suite, as an environment written against the public API."""

from __future__ import annotations

import base64
from typing import Any

import anyio
import mcp_types

from envport import Environment, Progress, Task, ToolError, tool

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
)
RESOURCE = mcp_types.EmbeddedResource(
    type="resource",
    resource=mcp_types.TextResourceContents(
        uri="test://embedded-resource", mime_type="text/plain", text="This is an embedded resource content."
    ),
)


class Conformance(Environment):
    """What the suite's scenarios for tools call."""

    def reset(self, *, seed: int, task: Task | None) -> str:
        return "ready"

    @tool
    def test_simple_text(self) -> str:
        """Return text."""
        return "This is a simple text response for testing."

    @tool
    def test_image_content(self) -> bytes:
        """Return an image."""
        return PIXEL

    @tool
    def test_audio_content(self) -> Any:
        """Return a sound."""
        return mcp_types.AudioContent(type="audio", data=base64.b64encode(b"RIFF").decode(), mime_type="audio/wav")

    @tool
    def test_embedded_resource(self) -> Any:
        """Return a resource."""
        return RESOURCE

    @tool
    def test_multiple_content_types(self) -> list[Any]:
        """Return text, an image and a resource."""
        return ["Multiple content types test:", PIXEL, RESOURCE]

    @tool
    def test_error_handling(self) -> str:
        """Refuse."""
        raise ToolError("This tool intentionally returns an error for testing")

    @tool
    async def test_tool_with_progress(self, progress: Progress) -> str:
        """Report progress."""
        for done in (0, 50, 100):
            progress(done, 100, f"Completed step {done} of 100")
            await anyio.lowlevel.checkpoint()
        return "done"
