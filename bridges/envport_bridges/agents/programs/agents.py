"""Whole agents: any program that speaks MCP, and how it learns which episode to play."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from envport.errors import InvalidOption
from envport.secrecy import without_secrets
from envport_bridges.agents.programs.commands import PLACEHOLDER, PLACEHOLDERS, checked_command
from envport_bridges.agents.programs.credentials import without_credentials
from envport_bridges.agents.programs.missions import MODEL_NAME, Mission, ModelAccess
from envport_bridges.agents.programs.rooms import Rooms

__all__ = ["PRESETS", "PRESETS_WITH_MODEL", "Agent"]

_SERVER = "envport"
_OF_AN_EPISODE = re.compile(r"\{(mcp_url|mcp_config|model_url|prompt|prompt_file)\}")
_SETTING = re.compile(r"\{(mcp_url|mcp_token|model_url|model_root|model_token)\}")


@dataclass(frozen=True)
class Agent:
    """A program that plays episodes.

    Attributes:
        command: Its command line with placeholders. It is split as a shell would, but runs without a shell.
        files: Settings files that it reads from its folder, each with the key for the server's address.
        settings: Environment variables that it needs, with placeholders of their own, which may name tokens.
        beside: What these settings files hold beside the server.
        home: Files of the user's home that it needs, such as its login. In a sandbox it gets copies of them.
        given_model: Whether each mission gives it a model. Then it gets no key and no login of the user.
    """

    command: str
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    settings: Mapping[str, str] = field(default_factory=dict[str, str])
    beside: Mapping[str, Any] = field(default_factory=dict[str, Any])
    home: tuple[str, ...] = ()
    given_model: bool = False

    @classmethod
    def named(cls, text: str, *, given_model: bool = False) -> Agent:
        """The preset with that name, or an agent for a command line.

        Args:
            text: The name or the command line.
            given_model: Whether each mission gives it a model.

        Raises:
            InvalidOption: The text is not a command line, its program or its file is not there, it names what is no
                placeholder, or the agent cannot be given a model.
        """
        agent = _preset(text, given_model) or cls(text)
        if not given_model and "{model_url}" in agent.command:
            raise InvalidOption(f"agent {text!r} names {{model_url}}, but it is given no model here")
        allowed = [name for name in PLACEHOLDERS if given_model or name != "model_url"]
        command = checked_command(text, agent.command, allowed, tuple(PRESETS))
        return replace(agent, command=command, given_model=given_model)

    @classmethod
    def resident(cls, text: str, *, given_model: bool = False) -> Agent:
        """An agent for the command line of a program that plays one mission after another; see `ResidentPool`.

        Raises:
            InvalidOption: The text is a preset or is not a command line, its program or its file is not there, or it
                names what is no placeholder, or what only a mission has.
        """
        if text in PRESETS:
            raise InvalidOption(
                f"agent {text!r} is started for each episode, and cannot stay: give a command line of a program that "
                "reads missions from its standard input"
            )
        if named := _OF_AN_EPISODE.search(text):
            raise InvalidOption(
                f"agent {text!r}: a program that stays is started before there is an episode, so that its command "
                f"cannot name {named[0]}. Each line of its standard input has that of a mission"
            )
        return cls(checked_command(text, text, ["python"], tuple(PRESETS)), given_model=given_model)

    def words(self, mission: Mission, rooms: Rooms) -> list[str]:
        """The arguments of the command, with the placeholders filled in."""
        values = {
            "mcp_url": mission.mcp_url,
            "mcp_config": str(rooms.mcp_config),
            "prompt": mission.prompt,
            "prompt_file": str(rooms.prompt_file),
            "model_url": mission.model.openai_url if mission.model else "{model_url}",
            "python": sys.executable,
        }
        return [PLACEHOLDER.sub(lambda found: values[found[1]], word) for word in shlex.split(self.command)]

    def resident_words(self) -> list[str]:
        """The arguments of the command of an agent that stays."""
        return [word.replace("{python}", sys.executable) for word in shlex.split(self.command)]

    def brief(self, mission: Mission, rooms: Rooms) -> None:
        """Write the files that the agent reads."""
        server: dict[str, Any] = {"type": "http", "url": mission.mcp_url, "headers": mission.headers}
        rooms.work.mkdir(parents=True, exist_ok=True)
        _write(rooms.mcp_config, json.dumps({"mcpServers": {_SERVER: server}}, indent=2))
        _write(rooms.prompt_file, mission.prompt)
        for name, key in self.files.items():
            servers = {_SERVER: {key: mission.mcp_url, "headers": mission.headers, "trust": True}}
            settings = {"mcpServers": servers, **self.beside}
            _write(rooms.work / name, json.dumps(settings, indent=2))

    def variables(self, mission: Mission, rooms: Rooms) -> dict[str, str]:
        """The agent's environment variables: ours without any token, plus those of the mission."""
        values = {"mcp_url": mission.mcp_url, "mcp_token": mission.token}
        if mission.model is not None:
            values |= {
                "model_url": mission.model.openai_url,
                "model_root": mission.model.url,
                "model_token": mission.model.token,
            }
        settings = {
            name: _SETTING.sub(lambda found: values.get(found[1], found[0]), value)
            for name, value in self.settings.items()
        }
        return self.shared_variables() | {
            **_of_model(mission.model),
            **settings,
            "ENVPORT_MCP_URL": mission.mcp_url,
            "ENVPORT_TOKEN": mission.token,
            "ENVPORT_PROMPT_FILE": str(rooms.prompt_file),
        }

    def shared_variables(self) -> dict[str, str]:
        """Our environment variables, without those that the agent must not have."""
        return without_credentials(os.environ) if self.given_model else without_secrets(os.environ)


def _of_model(model: ModelAccess | None) -> dict[str, str]:
    if model is None:
        return {}
    return {
        "OPENAI_BASE_URL": model.openai_url,
        "OPENAI_API_KEY": model.token,
        "ANTHROPIC_BASE_URL": model.url,
        "ANTHROPIC_API_KEY": model.token,
        "ENVPORT_MODEL": MODEL_NAME,
        "ENVPORT_MODEL_URL": model.openai_url,
        "ENVPORT_MODEL_TOKEN": model.token,
    }


def _preset(text: str, given_model: bool) -> Agent | None:
    if not given_model:
        return PRESETS.get(text)
    if text in PRESETS and text not in PRESETS_WITH_MODEL:
        raise InvalidOption(
            f"agent {text!r} cannot be given a model: it only speaks to its own. These can: "
            f"{', '.join(PRESETS_WITH_MODEL)}, and any command line"
        )
    return PRESETS_WITH_MODEL.get(text)


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    # Only our user may read the file, because it contains the token.
    file.touch(mode=0o600)
    file.write_text(text, encoding="utf-8")


def _opencode(**beside: Any) -> str:
    """The settings of OpenCode."""
    server = {
        "type": "remote",
        "url": "{mcp_url}",
        "headers": {"Authorization": "Bearer {mcp_token}"},
        "oauth": False,
        "enabled": True,
    }
    return json.dumps({"mcp": {_SERVER: server}, "autoupdate": False, "share": "disabled", **beside})


_CLAUDE = Agent(
    f"claude -p {{prompt}} --mcp-config {{mcp_config}} --strict-mcp-config --allowedTools mcp__{_SERVER}",
    # Otherwise it would hide the environment's tools until the model searches for them.
    settings={"ENABLE_TOOL_SEARCH": "false"},
    home=(".claude.json", ".claude/.credentials.json", ".claude/settings.json"),
)
_CODEX = (
    "codex exec --skip-git-repo-check "
    f"-c 'mcp_servers.{_SERVER}.url=\"{{mcp_url}}\"' "
    f"-c 'mcp_servers.{_SERVER}.bearer_token_env_var=\"ENVPORT_TOKEN\"' "
)
_MCP = Agent("{python} -m envport_bridges.agents.programs.plain_client")

PRESETS = {
    "claude-code": _CLAUDE,
    "codex": Agent(f"{_CODEX}{{prompt}}", home=(".codex/auth.json", ".codex/config.toml")),
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
    "opencode": Agent(
        "opencode run {prompt}",
        settings={"OPENCODE_CONFIG_CONTENT": _opencode()},
        home=(".config/opencode/opencode.json", ".local/share/opencode/auth.json"),
    ),
    "mcp": _MCP,
}
"""Presets: agents by name, each with the model of the user's login."""

PRESETS_WITH_MODEL = {
    "claude-code": replace(
        _CLAUDE,
        settings={**_CLAUDE.settings, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"},
        home=(),
    ),
    "codex": Agent(
        f"{_CODEX}-m {MODEL_NAME} -c 'model_provider=\"{_SERVER}\"' "
        f'-c \'model_providers.{_SERVER}={{name="{_SERVER}", base_url="{{model_url}}", '
        'env_key="ENVPORT_MODEL_TOKEN", wire_api="responses"}\' {prompt}'
    ),
    "opencode": Agent(
        f"opencode run --model {_SERVER}/{MODEL_NAME} {{prompt}}",
        settings={
            "OPENCODE_CONFIG_CONTENT": _opencode(
                model=f"{_SERVER}/{MODEL_NAME}",
                small_model=f"{_SERVER}/{MODEL_NAME}",
                provider={
                    _SERVER: {
                        "npm": "@ai-sdk/openai-compatible",
                        "options": {"baseURL": "{model_url}", "apiKey": "{model_token}"},
                        "models": {MODEL_NAME: {"name": MODEL_NAME}},
                    }
                },
            )
        },
    ),
    "mcp": _MCP,
}
"""The presets that can be given a model of ours, without any login of the user."""
