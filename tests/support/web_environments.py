"""Environments whose observations try to be more than text and images."""

from __future__ import annotations

import base64
from typing import Any

from mcp.types import ImageContent, ResourceLink

from envport import Environment, Step, Task, tool

SCRIPT = "<script>window.broken = true</script><img src=x onerror='window.broken = true'>"
TEMPLATE = "{{ constructor.constructor('window.broken = true')() }}"
SVG = b"<svg xmlns='http://www.w3.org/2000/svg' onload='window.broken=true'><script>window.broken=true</script></svg>"


class HostileEnvironment(Environment):
    """Says what a browser must not run: <b id="inserted">bold</b>."""

    def reset(self, *, seed: int, task: Task | None) -> str:
        """Begin."""
        self._reward = 0.25 + seed % 2
        return f"{SCRIPT}\n{TEMPLATE}\n**bold** [link](javascript:window.broken=true)"

    @tool
    def speak(self, word: str = SCRIPT) -> list[Any]:
        """Say it: <script>window.broken = true</script>

        Args:
            word: What to say: <img src=x onerror="window.broken=true">
        """
        data = base64.b64encode(SVG).decode()
        return [
            word,
            TEMPLATE,
            ImageContent(type="image", data=data, mime_type="image/svg+xml"),
            ImageContent(type="image", data=data, mime_type="image/png"),
            ResourceLink(type="resource_link", name="click", uri="javascript:window.broken=true"),
            ResourceLink(type="resource_link", name="far", uri="https://example.invalid/"),
        ]

    @tool
    def much(self, megabytes: int = 5) -> str:
        """Say very much.

        Args:
            megabytes: How much.
        """
        return "much " * (megabytes * 200_000)

    @tool
    def end(self) -> Step[str]:
        """End the episode."""
        return Step("over", reward=self._reward, terminated=True, info={"hidden": SCRIPT})
