"""`envport list` and `envport describe`."""

from __future__ import annotations

from typing import Annotated, Any, cast

import anyio
import typer

from envport.cli import console
from envport.cli.loading import Unloadable, load_environment, load_installed, load_schemes
from envport.cli.options import AnyEnvironment, AsJson, AtGateway, SplitName
from envport.cli.summary import first_line
from envport.client import Client
from envport.client.addresses import URL_VARIABLE, EnvironmentAddress
from envport.client.choosing import any_environment, gateway_of_user
from envport.episodes import Limits, environment_info, task_page
from envport.errors import UnknownTask
from envport.tools.allowed import describe_allowed
from envport.types import EnvironmentInfo, TaskPage

__all__ = ["describe", "list_environments"]


def list_environments(
    url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help=f"Ask the gateway at this address, not this machine.  [{URL_VARIABLE}]",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the environments that are installed here, or those that a gateway serves."""
    gateway = gateway_of_user(url)
    found, unloadable = _of_gateway(gateway) if gateway is not None else _of_machine()
    makers, missing = load_schemes() if gateway is None else ([], [])
    if gateway is not None and url is None:
        console.note(f"The environments at {gateway}, as {URL_VARIABLE} says. Here: {URL_VARIABLE}= envport list")
    if as_json:
        console.document(
            [{"name": it.name, "description": it.description, "version": it.version} for it in found]
            + [{"name": it.name, "error": it.why} for it in unloadable]
            + [{"name": name, "description": description} for name, description in makers]
            + [{"name": it.name, "error": it.why} for it in missing]
        )
        return
    console.rows((it.name, first_line(it.description)) for it in found)
    if makers:
        console.line()
        console.heading("With one word more:")
        console.rows(makers)
    unloadable = [*unloadable, *missing]
    if unloadable:
        console.line()
        console.heading("Cannot be loaded:")
        console.rows(((it.name, it.why) for it in unloadable), style="yellow")


def describe(
    environment: AnyEnvironment = None,
    url: AtGateway = None,
    split: SplitName = None,
    task: Annotated[
        int | None, typer.Option(min=0, help="Show the tools of this task, where tasks have tools of their own.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show an environment: its tools and their arguments, its tasks, limits and fingerprint."""
    page: TaskPage | None = None
    found = any_environment(environment, url)
    if isinstance(found, EnvironmentAddress):
        with Client(found.gateway) as client:
            info = client.environment(found.name)
            if task is not None:
                page = client.tasks(found.name, split=split, offset=task, limit=1)
    else:
        spec = load_environment(found)
        info = environment_info(spec, Limits())
        if task is not None:
            page = anyio.run(task_page, spec, split or spec.default_split or "", task, 1)
    if page is not None:
        info = _with_tools_of_task(info, page)
    if as_json:
        # Leave out empty fields: an environment that is not served has no address.
        console.document({key: value for key, value in info.model_dump(mode="json").items() if value != ""})
        return
    console.heading(f"{info.name}, version {info.version}")
    console.paragraph(info.description)
    if info.instructions != info.description:
        console.line()
        console.heading("Players are told:")
        console.paragraph(info.instructions)
    console.line()
    console.rows(_facts(info))
    for tool in info.tools:
        _show_tool(tool)


def _with_tools_of_task(info: EnvironmentInfo, page: TaskPage) -> EnvironmentInfo:
    if not page.tasks:
        raise UnknownTask(
            f"split {page.split!r} of {info.name!r} has no task {page.offset}; allowed: 0 to {page.total - 1}"
        )
    if not page.fingerprints:
        return info
    (fingerprint,) = page.fingerprints
    return info.model_copy(update={"fingerprint": fingerprint, "tools": page.listings[fingerprint]})


def _of_gateway(gateway: str) -> tuple[list[EnvironmentInfo], list[Unloadable]]:
    with Client(gateway) as client:
        return client.environments(), []


def _of_machine() -> tuple[list[EnvironmentInfo], list[Unloadable]]:
    specs, unloadable = load_installed()
    return [environment_info(spec, Limits()) for spec in specs], unloadable


def _facts(info: EnvironmentInfo) -> list[tuple[str, str]]:
    splits = ", ".join(f"{split.name} ({split.num_tasks} tasks)" for split in info.splits)
    steps = f"{info.limits.max_steps} calls" if info.limits.max_steps is not None else "no limit of calls"
    facts = [
        ("options", ", ".join(f"{key}={value}" for key, value in info.options.items()) or "as by default"),
        ("splits", splits or "none: the seed makes the episode"),
        ("limits", f"{steps}; expires after {info.limits.idle_seconds / 60:g} minutes without one"),
        ("reward", "the sum of the steps' rewards" if info.reward == "sum" else "the last step's reward"),
        ("fingerprint", info.fingerprint),
    ]
    if info.tools_vary:
        facts.append(("tools", "each task has tools of its own: --task INDEX shows them"))
    return [*facts, ("MCP URL", info.mcp_url)] if info.mcp_url else facts


def _show_tool(tool: dict[str, Any]) -> None:
    schema = cast("dict[str, Any]", tool["inputSchema"])
    properties = cast("dict[str, dict[str, Any]]", schema["properties"])
    console.line()
    console.heading(f"{tool['name']}({', '.join(properties)})")
    if description := tool.get("description"):
        console.paragraph(description)
    console.rows((name, _argument(name, schema)) for name in properties)


def _argument(name: str, schema: dict[str, Any]) -> str:
    argument = schema["properties"][name]
    words = describe_allowed(argument, schema)
    if name not in schema.get("required", ()):
        words += f"; {argument['default']!r} if not given" if "default" in argument else "; may be left out"
    if description := argument.get("description"):
        words += f". {description}"
    return words
