"""`envport compare`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from envport_bridges.evaluation.extra import require_extra

__all__ = ["compare"]


def compare(
    a: Annotated[Path, typer.Argument(metavar="A", help="Log of an evaluation.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="Log of another one.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Compare two evaluations: refused if they measured different things, else their paired differences."""
    require_extra()
    from envport_bridges.evaluation.comparison import compare_results
    from envport_bridges.evaluation.results import Result
    from envport_bridges.evaluation.table import print_comparison

    comparison = compare_results(Result.read(a), Result.read(b))
    if as_json:
        print(json.dumps(comparison.document(), indent=2))
    else:
        print_comparison(comparison)
