"""How to attach an MCP client: the command for Claude Code, and the settings for other clients."""

from __future__ import annotations

import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envport.cli import console
from envport.client.addresses import EnvironmentAddress
from envport.client.attaching import TOKEN_VARIABLE, claude_code, mcp_settings
from envport.references import from_anywhere

__all__ = ["TOKEN_VARIABLE", "Attachment", "envport_command", "with_own_pip"]


@dataclass(frozen=True)
class Attachment:
    """An MCP server as clients configure it: an address with headers, or a process.

    Attributes:
        name: The name that the client gives the server.
        url: The address.
        token: The token, or `TOKEN_VARIABLE`; `None` if none is needed.
        process: The command of the process, if there is no address.
    """

    name: str
    url: str | None = None
    token: str | None = None
    process: tuple[str, ...] = ()

    @classmethod
    def to(cls, gateway: str, name: str, *, with_token: bool) -> Attachment:
        """Attach to an environment of a gateway; the player starts episodes."""
        return cls.to_address(EnvironmentAddress(gateway, name).mcp_url, name, TOKEN_VARIABLE if with_token else None)

    @classmethod
    def to_address(cls, url: str, name: str, token: str | None) -> Attachment:
        """Attach to an address, such as that of an episode."""
        return cls(name, url, token)

    @classmethod
    def to_process(cls, name: str, reference: str) -> Attachment:
        """Attach to a process that the client starts, in any directory."""
        # Use an absolute path: this Python's scripts may not be on the client's PATH.
        script = Path(sys.executable).with_name("envport")
        start = (str(script),) if script.is_file() else (sys.executable, "-m", "envport.cli")
        return cls(name, process=(*start, "stdio", from_anywhere(reference)))

    @property
    def claude_code(self) -> list[str]:
        """The command that attaches Claude Code, as a list of arguments."""
        if self.url is None:
            return ["claude", "mcp", "add", self.name, "--", *self.process]
        return claude_code(self.name, self.url, self.token)

    @property
    def settings(self) -> dict[str, Any]:
        """The `mcpServers` settings that most clients read."""
        if self.url is not None:
            return mcp_settings(self.name, self.url, self.token)
        server = {"type": "stdio", "command": self.process[0], "args": list(self.process[1:])}
        return {"mcpServers": {self.name: server}}

    def show(self) -> None:
        """Print the command and the settings."""
        console.heading("Claude Code:")
        console.command(*self.claude_code)
        console.line()
        console.heading("Other clients (mcpServers in their settings):")
        console.document(self.settings)


def with_own_pip(message: str) -> str:
    """A message about a missing extra, with the command for the pip of this Python, as a shell in any folder starts it.

    Another pip would look for envport itself.
    """
    own, found = Path(sys.executable).with_name("pip"), shutil.which("pip")
    if found is not None and own.is_file() and own.samefile(found):
        return message
    return message.replace(": pip install ", f": {shlex.quote(sys.executable)} -m pip install ")


def envport_command() -> str:
    """How a shell in any folder starts `envport`: by its name if that finds it, and by its path if not."""
    script = Path(sys.executable).with_name("envport")
    found = shutil.which("envport")
    return str(script) if script.is_file() and (found is None or not script.samefile(found)) else "envport"
