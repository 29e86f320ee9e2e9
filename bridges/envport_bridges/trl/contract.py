"""What the bridge relies on in TRL and transformers, and whether it holds."""

from __future__ import annotations

import json
import logging
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from types import SimpleNamespace
from typing import Any

from envport.errors import MissingExtra
from envport_bridges.safe_names import SafeNames
from envport_bridges.trl.annotations import annotate
from envport_bridges.trl.arguments import ArgumentSchema
from envport_bridges.trl.tools import ExplicitTool, ListedTool

__all__ = ["KNOWN_TRL", "takes_explicit_tools", "trl_version"]

logger = logging.getLogger(__name__)

KNOWN_TRL = ("1.15.0", "1.16.0")
"""The versions of TRL for which the tests have shown that explicit schemas reach the prompt."""


def trl_version() -> str:
    """The installed version of TRL.

    Raises:
        MissingExtra: It is not installed.
    """
    try:
        return version("trl")
    except PackageNotFoundError:
        raise MissingExtra("The training bridge", "trl") from None


@cache
def takes_explicit_tools() -> bool:
    """Whether the installed transformers renders a callable dict as the schema that it is.

    Says so in the log if not, and if TRL is of a version that was not tried.
    """
    if (installed := trl_version()) not in KNOWN_TRL:
        logger.warning(
            "TRL %s was not tested with this bridge (known: %s). Tools are shown with their exact schemas if TRL still "
            "hands instance attributes to the chat template, and by their type hints if not.",
            installed,
            ", ".join(KNOWN_TRL),
        )
    schema = {"type": "object", "properties": {"a": {"const": [1, {"b": None}]}}, "$comment": "kept"}
    function = {"name": "a.b", "description": "", "parameters": schema}
    definition = ListedTool(
        name="a.b",
        identifier="a_b",
        function={"type": "function", "function": function},
        arguments=ArgumentSchema(schema),
        parameters=SafeNames(),
        annotated=annotate("", {}, SafeNames()),
    )
    try:
        rendered = _render(ExplicitTool(definition, SimpleNamespace(_player=None)))
    except (ImportError, TypeError, ValueError) as error:
        logger.warning("this version of transformers cannot be shown exact tool schemas: %s", error)
        return False
    if rendered != definition.function:
        logger.warning("this version of transformers changes tool schemas that are given to it as they are")
        return False
    return True


def _render(tool: Any) -> Any:
    rendering: Any = import_module("transformers.utils.chat_template_utils")
    texts, _ = rendering.render_jinja_template([[]], tools=[tool], chat_template="{{ tools | tojson }}")
    return json.loads(texts[0])[0]
