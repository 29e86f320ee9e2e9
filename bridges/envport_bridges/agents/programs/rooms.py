"""The folders of an agent's program. All of them are private to it, and gone at the end."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["Rooms"]


@dataclass(frozen=True)
class Rooms:
    """The folders of an agent's program, and the files that it is given.

    Attributes:
        root: The folder that holds them.
    """

    root: Path

    @property
    def work(self) -> Path:
        """The folder in which the agent runs."""
        return self.root / "work"

    @property
    def notes(self) -> Path:
        """The files that its command may name."""
        return self.root / "notes"

    @property
    def mcp_config(self) -> Path:
        """File with the `mcpServers` settings that most clients read."""
        return self.notes / "mcp.json"

    @property
    def prompt_file(self) -> Path:
        """File with the prompt."""
        return self.notes / "prompt.txt"

    @property
    def home(self) -> Path:
        """Its home, if it is in a sandbox."""
        return self.root / "home"

    @property
    def scratch(self) -> Path:
        """Its `/tmp`, if it is in a sandbox."""
        return self.root / "tmp"

    @property
    def settings(self) -> Path:
        """Its files in `/etc` that name users, if it is in a sandbox."""
        return self.root / "etc"
