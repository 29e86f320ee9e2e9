"""Makes the reference of the public API from its docstrings: `make docs`.

    python gateway/reference.py [FOLDER]

The docstrings are Google style; pdoc renders them.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import pdoc
import pdoc.render

MODULES = (
    "envport",
    "envport.client",
    "envport.types",
    "envport.errors",
    "envport.checker",
    "envport.registry",
    "envport.surfaces",
    "envport.trajectories",
    "envport.trajectories.recorder",
    "envport.cli.groups",
    "envport_bridges.export",
    "envport_bridges.rollouts",
    "envport_bridges.trl",
    "envport_bridges.inspect_ai",
    "envport_envs.browsergym",
)
"""What pages tell to import. Everything else may change without notice."""

FOLDER = Path("build/reference")


def prepare(modules: Sequence[str]) -> None:
    """Set pdoc to Google style, to ask nothing of other hosts, and to find all that the modules have."""
    pdoc.render.configure(docformat="google", show_source=False, footer_text="envport", math=False, mermaid=False)
    for name in modules:
        module = import_module(name)
        for member in getattr(module, "__all__", ()):
            # Some are imported when they are first asked for; pdoc only looks.
            setattr(module, member, getattr(module, member))


def main(arguments: list[str] | None = None) -> None:
    """Write the reference, and say where it is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    folder: Path = parser.parse_args(arguments).folder
    prepare(MODULES)
    pdoc.pdoc(*MODULES, output_directory=folder)
    print(f"The reference of the public API: {(folder / 'index.html').resolve().as_uri()}")


if __name__ == "__main__":
    main()
