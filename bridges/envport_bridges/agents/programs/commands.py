"""An agent's command line: its placeholders, its program and its files, checked before anything is started."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from envport.errors import InvalidOption

__all__ = ["PLACEHOLDER", "PLACEHOLDERS", "checked_command"]

PLACEHOLDERS = ("mcp_url", "mcp_config", "model_url", "prompt", "prompt_file", "python")
"""What a command can name in braces."""

PLACEHOLDER = re.compile(rf"\{{({'|'.join(PLACEHOLDERS)})\}}")
"""One of them, in its braces."""

_TOKEN = re.compile(r"\{(model_token|mcp_token|token)\}")
# `${name}` is a variable of a shell.
_BRACES = re.compile(r"(?<!\$)\{([A-Za-z_][\w-]*)\}")
# Other braces are the command's own, such as JSON, or `{print}` of awk.
_ALIKE = 0.7


def checked_command(text: str, command: str, allowed: Sequence[str], presets: Sequence[str]) -> str:
    """The command with absolute file paths, because the agent runs in another folder.

    Args:
        text: What the user gave: the command, or the name of a preset.
        command: The command line.
        allowed: The placeholders that it can name.
        presets: The names of the presets.

    Raises:
        InvalidOption: The text is not a command line, names a token or what is nearly a placeholder, or its program
            or the file that its Python is to run is not there.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InvalidOption(f"agent {text!r} is not a command line: {error}") from None
    if not words:
        raise InvalidOption("the agent's command line is empty")
    if named := _TOKEN.search(command):
        raise InvalidOption(
            f"agent {text!r} names {named[0]}: other programs could read it in the command line. The agent finds its "
            "tokens in the variables ENVPORT_TOKEN and ENVPORT_MODEL_TOKEN"
        )
    _require_placeholders(text, command, allowed)
    _require_program(text, words[0].replace("{python}", sys.executable), presets)
    script = _script_of(words)
    if script is not None and not os.path.exists(words[script]):
        raise InvalidOption(f"agent {text!r}: there is no file {os.path.abspath(words[script])!r}")
    return shlex.join(
        os.path.abspath(word) if place == script or _names_a_file(word) else word for place, word in enumerate(words)
    )


def _require_placeholders(text: str, command: str, allowed: Sequence[str]) -> None:
    for found in _BRACES.finditer(command):
        alike = get_close_matches(found[1].lower().replace("-", "_"), PLACEHOLDERS, n=1, cutoff=_ALIKE)
        if alike and found[1] not in PLACEHOLDERS:
            raise InvalidOption(
                f"agent {text!r} names {found[0]}, which is no placeholder; allowed here: "
                f"{', '.join(f'{{{name}}}' for name in allowed)}"
            )


def _require_program(text: str, program: str, presets: Sequence[str]) -> None:
    if shutil.which(program) is not None:
        return
    if text in presets:
        raise InvalidOption(f"the preset {text} needs the program {program!r}, which is not on PATH")
    raise InvalidOption(f"agent {text!r}: there is no program {program!r} here (presets: {', '.join(presets)})")


def _script_of(words: Sequence[str]) -> int | None:
    """The place of the file that `{python}` is to run; `None` if it runs none, or one that only an episode has."""
    if words[0] != "{python}":
        return None
    place = 1
    while place < len(words) and words[place].startswith("-"):
        word = words[place]
        # With `-c` and `-m`, it runs no file; with `-`, its standard input.
        if word == "-" or (not word.startswith("--") and re.match(r"-[^WX]*[cm]", word)):
            return None
        # The value of such an option is the next word, if it is not in the same one.
        place += 2 if re.fullmatch(r"-[^-WX]*[WX]|--check-hash-based-pycs", word) else 1
    return place if place < len(words) and not PLACEHOLDER.search(words[place]) else None


def _names_a_file(word: str) -> bool:
    # A word such as `run` is more likely a command than the file of that name which happens to be here.
    return ("/" in word or Path(word).suffix != "") and os.path.isfile(word)
