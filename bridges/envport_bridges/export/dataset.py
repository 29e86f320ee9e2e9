"""The columns of an export as `datasets` knows them, and reading an export back without a change."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

from envport.errors import ConfigurationError, MissingExtra

__all__ = ["dataset_features", "load_export", "tables_of"]

_BATCH = 500
_TEMPLATE_KWARGS = "chat_template_kwargs"


def load_export(*files: str | Path) -> Any:
    """Read exported files as a `datasets.Dataset` for `SFTTrainer(train_dataset=...)`.

    Each message is what was exported. Without the right types, `datasets` gives every message and every call the keys
    of all others, with `None` as their values, and some chat templates write those.

    Args:
        *files: `.jsonl` or `.parquet` files.

    Raises:
        ConfigurationError: A file is of another kind.
        MissingExtra: `datasets` is not installed.
    """
    datasets = _datasets()
    parts: list[Any] = []
    for file in map(Path, files):
        if file.suffix == ".parquet":
            # The file says which types its columns have.
            parts.append(datasets.Dataset.from_parquet(str(file)))
        elif file.suffix == ".jsonl":
            features = dataset_features(template_kwargs=_TEMPLATE_KWARGS in _first_row(file))
            parts.append(datasets.Dataset.from_json(str(file), features=features))
        else:
            raise ConfigurationError(f"{file} is no export of conversations: allowed are .jsonl and .parquet")
    return datasets.concatenate_datasets(parts) if len(parts) != 1 else parts[0]


def dataset_features(*, template_kwargs: bool = False) -> Any:
    """The type of each column, as `datasets.Features`.

    Args:
        template_kwargs: Whether there is a column `chat_template_kwargs`. TRL takes none that is empty in some rows.

    Raises:
        MissingExtra: `datasets` is not installed, or has no type for JSON (4.6 and older).
    """
    datasets = _datasets()
    value, any_json, rows = datasets.Value, datasets.Json, datasets.List
    texts = ("episode_id", "environment", "environment_version", "fingerprint", "split", "task", "status", "reason")
    return datasets.Features(
        {
            "messages": rows(any_json()),
            "tools": rows(any_json()),
            **{name: value("string") for name in (*texts, "fault", "principal")},
            **{name: value("int64") for name in ("task_index", "seed", "steps", "errors")},
            **{name: value("float64") for name in ("reward", "score", "created_at")},
            "rewards": rows(value("float64")),
            "episode_labels": any_json(),
            **({_TEMPLATE_KWARGS: any_json()} if template_kwargs else {}),
        }
    )


def tables_of(rows: Iterable[dict[str, Any]], features: Any) -> Iterator[Any]:
    """The rows as Arrow tables of some hundreds each, at least one.

    Args:
        rows: Rows as `conversation` makes them.
        features: The type of each column.
    """
    datasets = _datasets()
    remaining = iter(rows)
    batch = list(islice(remaining, _BATCH))
    while True:
        columns = {name: [row[name] for row in batch] for name in features}
        yield datasets.Dataset.from_dict(columns, features=features).data.table
        batch = list(islice(remaining, _BATCH))
        if not batch:
            return


def _first_row(file: Path) -> dict[str, Any]:
    try:
        with file.open(encoding="utf-8") as lines:
            return json.loads(lines.readline() or "{}")
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror}") from None
    except ValueError:
        raise ConfigurationError(f"{file} is no export of conversations: its first line is no JSON") from None


def _datasets() -> Any:
    try:
        datasets: Any = import_module("datasets")
    except ImportError:
        raise MissingExtra("Parquet, and reading an export", "export") from None
    if not hasattr(datasets, "Json"):
        raise MissingExtra("Parquet, and reading an export (datasets 4.7 or newer)", "export")
    return datasets
