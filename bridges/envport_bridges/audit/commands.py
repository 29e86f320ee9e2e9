"""`envport audit`."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import anyio
import typer
from pydantic_core import to_json

from envport.registry import load
from envport_bridges.evaluation.extra import require_extra

if TYPE_CHECKING:
    from envport_bridges.audit.auditing import Audit

__all__ = ["audit"]

_SIGNS = {"pass": "ok  ", "fail": "FAIL", "skip": "-   "}


def audit(
    reference: Annotated[
        str, typer.Argument(metavar="REFERENCE", help="The environment, as `envport serve` takes it.")
    ],
    episodes: Annotated[int, typer.Option(min=2, help="Episodes of each player.")] = 20,
    max_calls: Annotated[int, typer.Option(min=1, help="The most calls of an episode.")] = 100,
    seed: Annotated[int, typer.Option(min=0, help="Chooses tasks, and begins the seeds.")] = 0,
    cheat: Annotated[
        list[str] | None,
        typer.Option(help="A cheat of your own, module:function or ./file.py:function; may be repeated."),
    ] = None,
    json: Annotated[Path | None, typer.Option(help="Write the audit to this file too.")] = None,
    picture: Annotated[
        Path | None, typer.Option(help="Draw what each player earns into this .png or .svg file.")
    ] = None,
) -> None:
    """Find out whether the reward of an environment can be trusted: what nobody, random play and cheats earn."""
    require_extra()
    from envport_bridges.audit.auditing import audit as play_audit
    from envport_bridges.audit.own_cheats import load_cheat

    cheats = [load_cheat(name) for name in cheat or ()]
    definition = load(reference)

    async def run() -> Audit:
        return await play_audit(
            definition,
            episodes=episodes,
            most_calls=max_calls,
            seed=seed,
            cheats=cheats,
            tell=lambda line: print(f"playing: {line}", file=sys.stderr),
        )

    found = anyio.run(run)
    _print(found)
    if json is not None:
        json.write_bytes(to_json({**dataclasses.asdict(found), "passed": found.passed}, indent=2))
    if picture is not None:
        from envport_bridges.audit.picture import draw

        draw(found, picture)
    raise typer.Exit(0 if found.passed else 1)


def _print(found: Audit) -> None:
    rows = [("player", "episodes", "lost", "mean reward", "95% interval", "lowest", "highest", "calls")]
    for one in found.players:
        reward = one.reward
        interval = "" if reward.low is None else f"[{reward.low:.3f}, {reward.high:.3f}]"
        figures = (_number(reward.mean), interval, _number(one.lowest), _number(one.highest), f"{one.calls:.1f}")
        rows.append((f"{one.name} ({one.kind})", f"{one.episodes}", f"{one.lost}", *figures))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for name, *cells in rows:
        print(
            name.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True)), sep="  "
        )
    print()
    for finding in found.findings:
        print(f"{_SIGNS[finding.status]} {finding.check}: {finding.message}")
    print(f"\n{found.environment}: {'no check failed' if found.passed else 'the reward cannot be trusted yet'}")


def _number(value: Any) -> str:
    return "" if value is None else f"{value:.3f}"
