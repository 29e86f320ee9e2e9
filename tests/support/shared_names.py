"""Fails if two modules define a public class or type of one name: a user may import both. Run by `make lint`."""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

PACKAGES = ("gateway/envport", "envs/envport_envs", "bridges/envport_bridges")
# Each module's own, as Python's typing wants it.
ALLOWED = {"ResultT"}


def types_of(tree: ast.Module) -> Iterator[str]:
    """Names of classes and type aliases at the top of a module."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id


def main() -> int:
    root = Path(__file__).parents[2]
    homes: dict[str, list[str]] = defaultdict(list)
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            for name in types_of(ast.parse(path.read_text())):
                if name[0].isupper() and not name.isupper() and name not in ALLOWED:
                    homes[name].append(str(path.relative_to(root)))
    shared = {name: places for name, places in homes.items() if len(places) > 1}
    for name, places in sorted(shared.items()):
        print(f"{name} is defined {len(places)} times: {', '.join(places)}")
    return 1 if shared else 0


if __name__ == "__main__":
    sys.exit(main())
