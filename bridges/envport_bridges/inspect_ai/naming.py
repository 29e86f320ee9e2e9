"""The names under which Inspect finds what is here: `envport_bridges/episode` and the like."""

from __future__ import annotations

import site
from pathlib import Path

__all__ = ["qualified"]

_PACKAGE = "envport_bridges"


def qualified(name: str) -> str:
    """The name to register.

    Inspect puts the package's name in front for what lies in site-packages. In an editable install it asks for a
    distribution of the package's name, and ours has another; there, it is put in front here.
    """
    here = Path(__file__)
    installed = (*site.getsitepackages(), site.getusersitepackages())
    if "site-packages" in here.parts or any(here.is_relative_to(place) for place in installed):
        return name
    return f"{_PACKAGE}/{name}"
