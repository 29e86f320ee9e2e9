"""The names under which Inspect finds our objects, such as `envport_bridges/episode`."""

from __future__ import annotations

import site
from pathlib import Path

__all__ = ["qualified"]

_PACKAGE = "envport_bridges"


def qualified(name: str) -> str:
    """The name under which to register an object.

    Inspect adds the package's name as a prefix for code in site-packages. In an editable install it looks for a
    distribution with the package's name, but ours has another name. There, this function adds the prefix.
    """
    here = Path(__file__)
    installed = (*site.getsitepackages(), site.getusersitepackages())
    if "site-packages" in here.parts or any(here.is_relative_to(place) for place in installed):
        return name
    return f"{_PACKAGE}/{name}"
