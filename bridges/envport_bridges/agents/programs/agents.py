"""Whole agents: any program that speaks MCP, and how it learns which episode to play."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from envport.errors import InvalidOption
from envport.secrecy import without_secrets

__all__ = ["PRESETS", "Agent", "Mission"]

_SERVER = "envport"
_PLACEHOLDER = re.compile(r"\{(mcp_url|mcp_config|prompt|prompt_file|python)\}")


@dataclass(frozen=True)
class Mission:
    """The episode that an agent has to play, and its files.

    Attributes:
        mcp_url: MCP address of the episode.
        token: Bearer token that only allows playing this episode.
        prompt: The task's prompt and the first observation.
        folder: An empty folder, in which the agent runs.
        notes: Another folder, for the files that the command may name.
    """

    mcp_url: str
    token: str
    prompt: str
    folder: Path
    notes: Path

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the agent's MCP requests."""
        return {"Authorization": f"Bearer {self.token}"}

    @property
    def mcp_config(self) -> Path:
        """File with the `mcpServers` settings that most clients read."""
        return self.notes / "mcp.json"

    @property
    def prompt_file(self) -> Path:
        """File with the prompt."""
        return self.notes / "prompt.txt"


@dataclass(frozen=True)
class Agent:
    """A program that plays episodes.

    Attributes:
        command: Its command line with placeholders. It is split as a shell would, but runs without a shell.
        files: Settings files that it reads from its folder, each with the key for the server's address.
        settings: Environment variables that it needs.
        beside: What these settings files hold beside the server.
        home: Files of the user's home that it needs, such as its login. In a sandbox it gets copies of them.
    """

    command: str
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    settings: Mapping[str, str] = field(default_factory=dict[str, str])
    beside: Mapping[str, Any] = field(default_factory=dict[str, Any])
    home: tuple[str, ...] = ()

    @classmethod
    def named(cls, text: str) -> Agent:
        """The preset with that name, or an agent for a command line.

        Raises:
            InvalidOption: The text is not a command line, or its program is not installed.
        """
        agent = PRESETS.get(text) or cls(text)
        try:
            words = shlex.split(agent.command)
        except ValueError as error:
            raise InvalidOption(f"agent {text!r} is not a command line: {error}") from None
        if not words:
            raise InvalidOption("the agent's command line is empty")
        program = words[0].replace("{python}", sys.executable)
        if shutil.which(program) is None:
            presets = ", ".join(PRESETS)
            raise InvalidOption(f"agent {text!r}: there is no program {program!r} here (presets: {presets})")
        return replace(agent, command=_absolute(words))

    def words(self, mission: Mission) -> list[str]:
        """The arguments of the command, with the placeholders filled in."""
        values = {
            "mcp_url": mission.mcp_url,
            "mcp_config": str(mission.mcp_config),
            "prompt": mission.prompt,
            "prompt_file": str(mission.prompt_file),
            "python": sys.executable,
        }
        return [_PLACEHOLDER.sub(lambda found: values[found[1]], word) for word in shlex.split(self.command)]

    def brief(self, mission: Mission) -> None:
        """Write the files that the agent reads."""
        server: dict[str, Any] = {"type": "http", "url": mission.mcp_url, "headers": mission.headers}
        mission.folder.mkdir(parents=True, exist_ok=True)
        _write(mission.mcp_config, json.dumps({"mcpServers": {_SERVER: server}}, indent=2))
        _write(mission.prompt_file, mission.prompt)
        for name, key in self.files.items():
            servers = {_SERVER: {key: mission.mcp_url, "headers": mission.headers, "trust": True}}
            settings = {"mcpServers": servers, **self.beside}
            _write(mission.folder / name, json.dumps(settings, indent=2))

    def variables(self, mission: Mission) -> dict[str, str]:
        """The agent's environment variables: ours without any token, plus those of the mission."""
        return without_secrets(os.environ) | {
            **self.settings,
            "ENVPORT_MCP_URL": mission.mcp_url,
            "ENVPORT_TOKEN": mission.token,
            "ENVPORT_PROMPT_FILE": str(mission.prompt_file),
        }


def _absolute(words: list[str]) -> str:
    """The command with absolute file paths, because the agent runs in another folder."""
    found = [os.path.abspath(word) if "/" in word and Path(word).is_file() else word for word in words]
    return shlex.join(found)


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    # Only our user may read the file, because it contains the token.
    file.touch(mode=0o600)
    file.write_text(text, encoding="utf-8")


PRESETS = {
    "claude-code": Agent(
        f"claude -p {{prompt}} --mcp-config {{mcp_config}} --strict-mcp-config --allowedTools mcp__{_SERVER}",
        {},
        # Otherwise it would hide the environment's tools until the model searches for them.
        {"ENABLE_TOOL_SEARCH": "false"},
        home=(".claude.json", ".claude/.credentials.json", ".claude/settings.json"),
    ),
    "codex": Agent(
        "codex exec --skip-git-repo-check "
        f"-c 'mcp_servers.{_SERVER}.url=\"{{mcp_url}}\"' "
        f"-c 'mcp_servers.{_SERVER}.bearer_token_env_var=\"ENVPORT_TOKEN\"' {{prompt}}",
        home=(".codex/auth.json", ".codex/config.toml"),
    ),
    "gemini": Agent(
        "gemini -p {prompt}",
        {".gemini/settings.json": "httpUrl"},
        # Otherwise it would ignore the settings, because the new folder is not trusted.
        {"GEMINI_CLI_TRUST_WORKSPACE": "true"},
        # Otherwise it would stop an episode at the fifth equal call in a row, which may be right to make.
        {"model": {"disableLoopDetection": True}},
        (
            ".gemini/.env",
            ".gemini/google_accounts.json",
            ".gemini/installation_id",
            ".gemini/oauth_creds.json",
            ".gemini/settings.json",
        ),
    ),
    "mcp": Agent("{python} -m envport_bridges.agents.programs.plain_client"),
}
"""Presets: agents by name."""
