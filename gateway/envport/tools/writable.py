"""Whether a value can be sent to clients as JSON."""

from __future__ import annotations

import json
from typing import Any

from envport.blocks import MOST_NESTED, nested_too_deeply

__all__ = ["why_unwritable"]


def why_unwritable(value: Any) -> str | None:
    """Why a value cannot be written as JSON in UTF-8; `None` if it can.

    Args:
        value: The value, such as a tool's listing.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        return f"it contains the lone surrogate {error.object[error.start]!a}, which is not a character"
    except (TypeError, ValueError, RecursionError) as error:
        return f"it cannot be written as JSON: {error}"
    return f"it has more than {MOST_NESTED} levels of objects and lists" if nested_too_deeply(value, text) else None
