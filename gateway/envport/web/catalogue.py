"""The catalogue: environments, their tools and tasks, and how to attach a client."""

from __future__ import annotations

import json
import shlex
from typing import Any
from urllib.parse import unquote

from nicegui import ui

from envport.client.addresses import EnvironmentAddress
from envport.client.attaching import TOKEN_VARIABLE, claude_code, mcp_settings
from envport.definition import EnvironmentDefinition
from envport.episodes import environment_info, task_page
from envport.errors import EnvportError
from envport.types import EnvironmentInfo, Split, Task
from envport.web.shown import (
    code,
    copied,
    environment_link,
    heading,
    link,
    note,
    show_blocks,
    show_facts,
    show_text,
    text,
    written,
)
from envport.web.viewer import Viewer

__all__ = ["CatalogueView", "EnvironmentView"]

_TASKS = 20


class CatalogueView:
    """All environments.

    Args:
        viewer: Who looks.
    """

    def __init__(self, viewer: Viewer):
        self._viewer = viewer

    def build(self) -> None:
        """Make the elements."""
        ui.page_title("envport")
        heading("Environments", 1)
        environments = self._viewer.parts.table.environments
        note(f"envport {self._viewer.parts.version} serves {len(environments)} here.")
        with ui.element("div").classes("ev-cards"):
            for spec in environments.values():
                self._card(spec)

    def _card(self, spec: EnvironmentDefinition) -> None:
        with ui.element("section").classes("ev-card"):
            with heading(""):
                link(spec.name, environment_link(spec.name))
            text(spec.description.split("\n\n")[0], "p", "ev-p")
            note(f"Tools: {', '.join(spec.tools)}")
            with ui.element("div").classes("ev-row"):
                if self._viewer.may_act:
                    link("Play", environment_link(spec.name, "play"))
                link("Tools, tasks, attach", environment_link(spec.name))


class EnvironmentView:
    """One environment.

    Args:
        viewer: Who looks.
        name: Its name, quoted as in a path.
    """

    def __init__(self, viewer: Viewer, name: str):
        self._viewer = viewer
        self._name = unquote(name)

    def build(self) -> None:
        """Make the elements."""
        ui.page_title(f"{self._name} · envport")
        table = self._viewer.parts.table
        spec = table.environments.get(self._name)
        if spec is None:
            heading("No such environment", 1)
            text(f"Served here: {', '.join(table.environments)}.", "p", "ev-p")
            return
        info = environment_info(spec, table.limits, replicated=table.replicated)
        heading(spec.name, 1)
        for part in info.description.split("\n\n"):
            text(part, "p", "ev-p")
        if self._viewer.may_act:
            link("Play it here", environment_link(spec.name, "play"))
        if info.instructions and info.instructions != info.description:
            heading("What a player is told")
            show_text(info.instructions)
        self._attach(spec)
        heading("Tools")
        if info.tools_vary:
            note("Tasks have tools of their own; these are all that are declared.")
        for tool in info.tools:
            _show_tool(tool)
        for split in info.splits:
            TaskList(self._viewer, spec, split).build()
        self._facts(info)

    def _attach(self, spec: EnvironmentDefinition) -> None:
        viewer = self._viewer
        address = EnvironmentAddress(viewer.url, spec.name).mcp_url
        token = TOKEN_VARIABLE if viewer.parts.access.required else None
        heading("Attach a client")
        if token is not None:
            note("Clients take the token from the variable ENVPORT_TOKEN.")
        heading("Claude Code", 3)
        copied(shlex.join(claude_code(spec.name, address, token)), "Claude Code")
        heading("Other MCP clients: mcpServers in their settings", 3)
        copied(json.dumps(mcp_settings(spec.name, address, token), indent=2), "mcpServers settings")
        heading("Address (Streamable HTTP)", 3)
        copied(address, "MCP address")
        heading("In a terminal", 3)
        copied(shlex.join(["envport", "play", spec.name, "--url", viewer.url]), "command to play in a terminal")

    def _facts(self, info: EnvironmentInfo) -> None:
        heading("Facts")
        limits = info.limits
        show_facts(
            {
                "Version": info.version,
                "Options": json.dumps(info.options, default=repr) if info.options else None,
                "Reward": "the sum of the steps" if info.reward == "sum" else "that of the last step",
                "Scored at the end": "yes" if info.scored else "no",
                "Most steps": limits.max_steps,
                "Idle time": f"{limits.idle_seconds:g} s",
                "Time for a call": f"{limits.call_seconds:g} s" if limits.call_seconds else None,
                "Live episodes at most": limits.places,
                "Fingerprint of the tools": info.fingerprint,
            }
        )


def _show_tool(tool: dict[str, Any]) -> None:
    with ui.element("section").classes("ev-step"):
        heading(tool["name"], 3)
        if description := tool.get("description"):
            text(description, "p", "ev-p")
        with ui.expansion("Schema").props("dense"):
            code(written(tool["inputSchema"]), f"Input schema of {tool['name']}")
            if "outputSchema" in tool:
                note("Its result:")
                code(written(tool["outputSchema"]), f"Output schema of {tool['name']}")


class TaskList:
    """The tasks of a split, by page.

    Args:
        viewer: Who looks.
        spec: The environment.
        split: The split.
    """

    def __init__(self, viewer: Viewer, spec: EnvironmentDefinition, split: Split):
        self._viewer = viewer
        self._spec = spec
        self._split = split

    def build(self) -> None:
        """Make the elements."""
        total = self._split.num_tasks
        heading(f"Tasks: {self._split.name} ({total:,})")
        pages = max(1, -(-total // _TASKS))
        if pages > 1:
            ui.pagination(
                1, pages, direction_links=True, on_change=lambda event: self._show((event.value or 1) - 1)
            ).props(f"max-pages=5 aria-label='Pages of tasks' :input='{str(pages > 7).lower()}'")
        self._holder = ui.element("div")
        ui.timer(0, lambda: self._show(0), once=True)

    async def _show(self, page: int) -> None:
        try:
            found = await task_page(self._spec, self._split.name, page * _TASKS, _TASKS)
        except EnvportError as error:
            with self._holder.clear():
                text(str(error), "p", "ev-alert")
            return
        with self._holder.clear():
            for index, task in enumerate(found.tasks, found.offset):
                self._task(index, task)

    def _task(self, index: int, task: Task) -> None:
        with ui.expansion(f"{index}: {task.id}").props("dense"):
            if isinstance(task.prompt, str):
                show_text(task.prompt or "(the prompt is that of the environment)")
            else:
                show_blocks(task.prompt)
            # A player never sees it.
            if task.metadata and self._viewer.sees_rewards:
                note("Metadata, which players do not see:")
                code(written(task.model_dump(mode="json")["metadata"]), f"Metadata of task {index}")
