"""Logging of a long-running command to standard error, as text or as JSON lines."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sys
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from envport.telemetry.subject import episode_at_hand, principal_at_hand
from envport.telemetry.tracing import current_ids

__all__ = ["ENDS", "LogFormat", "LogLevel", "configure_logging"]


class LogLevel(StrEnum):
    """The least severe messages that are logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """The format of log lines."""

    TEXT = "text"
    JSON = "json"


ENDS = "envport.episodes.ends"
"""The logger of episodes that ended as usual: one line for each would be most of a training's log."""


def configure_logging(level: LogLevel, form: LogFormat = LogFormat.TEXT, *, ends: bool = False) -> None:
    """Log to standard error.

    Args:
        level: The least severe messages of envport that are logged. At `info`, libraries log from `warning` on; at
            any other level, they use the same level.
        form: Lines for people, or a JSON object on each line.
        ends: Whether episodes that ended as usual are logged, at `info`. At `debug`, they always are.
    """
    handler = logging.StreamHandler(sys.stderr)
    date = "%H:%M:%S" if sys.stderr.isatty() else "%Y-%m-%d %H:%M:%S"
    people = _TextLines("%(asctime)s %(levelname)s %(name)s: %(message)s", date)
    handler.setFormatter(_JsonLines() if form is LogFormat.JSON else people)
    handler.addFilter(_is_told_of)
    logging.basicConfig(level="WARNING" if level is LogLevel.INFO else level.upper(), handlers=[handler], force=True)
    logging.getLogger("envport").setLevel(level.upper())
    logging.getLogger(ENDS).setLevel("WARNING" if level is LogLevel.INFO and not ends else level.upper())
    # At debug level, it logs the headers of WebSocket handshakes, with their tokens.
    server = logging.getLogger("uvicorn.error")
    server.setLevel(max(server.getEffectiveLevel(), logging.INFO))
    # Otherwise Python's warnings would be printed as lines that are no records, with whatever text is in them.
    logging.captureWarnings(True)


def _is_told_of(record: logging.LogRecord) -> bool:
    """Whether to log a record. Records of requests that were cancelled at shutdown are left out."""
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


_ABOUT = ("principal", "environment", "episode_id", "labels", "outcome", "fault")


# What could begin a new line, control a terminal, or change the order in which a line is shown. Messages may contain
# text of environments and clients.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_CONTINUED = "\n  | "


class _TextLines(logging.Formatter):
    """Each record begins a line. Its further lines are marked, so that no text in it looks like another record."""

    def format(self, record: logging.LogRecord) -> str:
        return _UNSAFE.sub(_escaped, super().format(record)).replace("\n", _CONTINUED)


def _escaped(found: re.Match[str]) -> str:
    number = ord(found[0])
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"


def _escaped_in_json(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_at_hand(),
            **{name: value for name in _ABOUT if (value := getattr(record, name, None)) is not None},
        }
        if (ids := current_ids()) is not None:
            line["trace_id"], line["span_id"] = ids
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = self.formatStack(record.stack_info)
        return _UNSAFE.sub(_escaped_in_json, json.dumps(line, ensure_ascii=False))


def _at_hand() -> dict[str, Any]:
    """The principal and the episode that the current code works for."""
    fields: dict[str, Any] = {}
    if (principal := principal_at_hand.get()) is not None:
        fields["principal"] = principal
    if (episode := episode_at_hand.get()) is not None:
        fields |= episode.fields()
    return fields
