"""Logging of a command that runs for long: to standard error, for people or for programs."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from datetime import UTC, datetime
from enum import StrEnum

__all__ = ["LogLevel", "configure_logging"]


class LogLevel(StrEnum):
    """The least severe messages that are logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def configure_logging(level: LogLevel) -> None:
    """Log lines for people if standard error is a terminal, else a JSON object on each line.

    Args:
        level: The least severe messages of envport that are logged; those of libraries are from `warning` on,
            unless this is `debug`.
    """
    handler = logging.StreamHandler(sys.stderr)
    people = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s", "%H:%M:%S")
    handler.setFormatter(people if sys.stderr.isatty() else _JsonLines())
    handler.addFilter(_is_told_of)
    logging.basicConfig(level="WARNING" if level is LogLevel.INFO else level.upper(), handlers=[handler], force=True)
    logging.getLogger("envport").setLevel(level.upper())


def _is_told_of(record: logging.LogRecord) -> bool:
    """Leaves out what a request says that was cancelled by the gateway's end."""
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)
