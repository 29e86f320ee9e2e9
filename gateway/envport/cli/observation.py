"""Shows observations on a terminal. Content that a terminal cannot show is saved to files."""

from __future__ import annotations

import base64
import binascii
import mimetypes
import tempfile
from collections.abc import Callable
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

from envport.blocks import ContentBlock
from envport.cli import console
from envport.types import Observation

__all__ = ["ObservationPrinter"]


class ObservationPrinter:
    """Prints observations.

    Args:
        keep: Keeps the content of an image or sound of a MIME type, and returns what to print in its place. If not
            given, it is saved to a temporary folder, which is created when it is first needed.
    """

    def __init__(self, keep: Callable[[bytes, str], str] | None = None) -> None:
        self._keep = keep or self._save
        self._numbers = count(1)

    @cached_property
    def _folder(self) -> Path:
        return Path(tempfile.mkdtemp(prefix="envport-"))

    def show(self, observation: Observation, style: str = "") -> None:
        """Print an observation."""
        for block in observation.content:
            self._show_block(block, style)

    def _show_block(self, block: ContentBlock, style: str) -> None:
        kind = block.get("type")
        if kind == "text":
            console.line(str(block.get("text", "")), style)
        elif kind in ("image", "audio"):
            console.line(f"[{kind}: {self._kept(block.get('data'), block.get('mimeType'))}]", "cyan")
        elif kind == "resource_link":
            console.line(f"[resource: {block.get('uri')}]", "cyan")
        elif kind == "resource":
            self._show_resource(block.get("resource") or {}, style)
        else:
            console.line(f"[{kind}]", "cyan")

    def _show_resource(self, resource: dict[str, Any], style: str) -> None:
        if "text" in resource:
            console.line(str(resource["text"]), style)
        else:
            saved = self._kept(resource.get("blob"), resource.get("mimeType"))
            console.line(f"[resource {resource.get('uri')}: {saved}]", "cyan")

    def _kept(self, data: Any, mime_type: Any) -> str:
        try:
            content = base64.b64decode(str(data), validate=True)
        except (binascii.Error, ValueError):
            return "not readable"
        return self._keep(content, str(mime_type))

    def _save(self, content: bytes, mime_type: str) -> str:
        suffix = mimetypes.guess_extension(mime_type) or ".bin"
        path = self._folder / f"{next(self._numbers)}{suffix}"
        path.write_bytes(content)
        return str(path)
