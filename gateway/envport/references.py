r"""The text that names an environment, and its parts.

| reference | names |
|---|---|
| `catch` | an environment that an installed package registers |
| `package.module:Class` | a class in a module |
| `./path/file.py:Class` | a class in a file |
| `./envport.toml:name` | an environment of a file of environments |
| `scheme:rest` | whatever the package that registers the scheme makes of `rest` |

Before it may stand another name (`small=catch`), and after it options (`catch?rows=8&columns=4`).

The rest after a scheme may hold anything, also spaces, `:`, `=`, `?` and `://`. It may be written in double quotes, in
which `\"` and `\\` stand for a quote and a backslash. What follows the closing quote can only be options.
Without quotes:

- `scheme:word?option=value` has options, as after any other reference.
- If an address or a command precedes the question mark (`mcp:http://host/mcp?a=b`), it belongs to the rest. If one of
  the keys after it is also an option of the scheme, the text could mean both, and is refused.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import parse_qsl, urlsplit

from envport.errors import InvalidOption

__all__ = ["ParsedReference", "SchemeText", "from_anywhere", "is_address", "names_server"]

_SCHEME = re.compile(r"[a-z][a-z0-9_+-]*")
_FILES = (".py", ".toml")


def is_address(text: str) -> bool:
    """Whether a text is the address of an environment at a gateway, and not a reference."""
    return text.lower().startswith(("http://", "https://"))


def names_server(url: str) -> bool:
    """Whether a text is an HTTP URL with a host, and a port at which one can listen."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class ParsedReference:
    """A reference, split where its grammar allows it without knowing what is installed.

    Attributes:
        alias: The name to serve it under, if one precedes it.
        target: Everything after the alias.
    """

    alias: str | None
    target: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Split the alias off. An equals sign after a colon or a question mark belongs to what follows."""
        mark = re.search("[=:?]", text)
        if mark is None or mark[0] != "=":
            return cls(None, text)
        return cls(text[: mark.start()], text[mark.end() :])

    @property
    def where(self) -> str:
        """What precedes the first colon: a scheme, a module or a file."""
        return self.target.partition(":")[0]

    @property
    def may_have_scheme(self) -> bool:
        """Whether it can be `scheme:rest`."""
        return ":" in self.target and _SCHEME.fullmatch(self.where) is not None

    def plain(self) -> tuple[str, str]:
        """The target without its options, and the options, for a reference without a scheme."""
        head, _, query = self.target.partition("?")
        return head, query


@dataclass(frozen=True, slots=True)
class SchemeText:
    """What follows `scheme:`.

    Attributes:
        rest: The text for the scheme, without quotes.
        query: The options as `key=value&key=value`.
        quoted: Whether the rest was in quotes.
    """

    rest: str
    query: str = ""
    quoted: bool = False

    @classmethod
    def read(cls, scheme: str, text: str, options: Collection[str]) -> SchemeText:
        """Separate the rest from the options.

        Args:
            scheme: The scheme.
            text: What follows its colon.
            options: The names of the scheme's options.

        Raises:
            InvalidOption: The rest is empty, its quote is not closed, or the text could mean two things.
        """
        if text.startswith('"'):
            return cls._unquoted(scheme, text)
        rest, mark, query = text.partition("?")
        if not rest:
            raise InvalidOption(f"reference {scheme + ':' + text!r} says nothing after the scheme; write {scheme}:REST")
        if not mark:
            return cls(rest)
        if "://" not in rest and not re.search(r"\s", rest):
            return cls(rest, query)
        if meant := [key for key, _ in parse_qsl(query, keep_blank_values=True) if key in options]:
            raise InvalidOption(
                f"reference {scheme + ':' + text!r} could mean two things, because {meant[0]!r} is also an option of "
                f"the scheme {scheme!r}: write {scheme}:{_quoted(text)} if it belongs to the address or command, and "
                f"{scheme}:{_quoted(rest)}?{query} if it is an option"
            )
        return cls(text)

    @classmethod
    def _unquoted(cls, scheme: str, text: str) -> SchemeText:
        closed = re.match(r'"((?:[^"\\]|\\.)*)"', text, re.DOTALL)
        if closed is None:
            raise InvalidOption(f"reference {scheme + ':' + text!r} opens a quote and does not close it")
        after = text[closed.end() :]
        if after and not after.startswith("?"):
            raise InvalidOption(
                f"reference {scheme + ':' + text!r} goes on after its closing quote, where only ?options can follow: "
                f"write {scheme}:{_quoted(text)} if the quotes belong to the text"
            )
        return cls(re.sub(r"\\(.)", r"\1", closed[1], flags=re.DOTALL), after[1:], quoted=True)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def from_anywhere(reference: str, folder: Path | None = None) -> str:
    """The same reference with an absolute path, so that it means the same in any folder.

    Args:
        reference: Of an environment or a policy. Only `./file.py:...` and `./file.toml:...` name a path; any other
            text stays as it is.
        folder: What a relative path is relative to; the current folder if not given.
    """
    found = ParsedReference.parse(reference)
    where, colon, rest = found.target.partition(":")
    if not colon or not where.endswith(_FILES):
        return reference
    alias = f"{found.alias}=" if found.alias is not None else ""
    return f"{alias}{(folder or Path.cwd()).joinpath(where).resolve()}:{rest}"
