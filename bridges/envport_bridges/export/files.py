"""Writing exports: under a temporary name first, so that a file under the final name is complete."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from envport.errors import ConfigurationError
from envport.trajectories.recorded import RecordedEpisode
from envport_bridges.export.atif import atif_document
from envport_bridges.export.conversation import ConversationForm, conversation
from envport_bridges.export.dataset import dataset_features, tables_of

__all__ = ["write_atif", "write_jsonl", "write_parquet"]


def write_jsonl(
    episodes: Iterable[RecordedEpisode],
    file: Path,
    form: ConversationForm = ConversationForm(),  # noqa: B008
) -> int:
    """Write conversations, one JSON object on each line.

    Args:
        episodes: The episodes.
        file: The file; one that exists is replaced.
        form: What is written of an episode.

    Returns:
        How many were written.

    Raises:
        ConfigurationError: The file cannot be written.
        InvalidRequest: Of an episode, the first calls or the tools are not recorded any more.
    """
    count = 0
    with _beside(file, Path.unlink) as temporary, temporary.open("x", encoding="utf-8") as lines:
        for recorded in episodes:
            lines.write(json.dumps(conversation(recorded, form), ensure_ascii=False) + "\n")
            count += 1
        _to_disk(lines)
    return count


def write_parquet(
    episodes: Iterable[RecordedEpisode],
    file: Path,
    form: ConversationForm = ConversationForm(),  # noqa: B008
) -> int:
    """Write conversations as Parquet, with the types of `datasets`; see `write_jsonl`.

    Raises:
        MissingExtra: `datasets` is not installed.
    """
    features = dataset_features(template_kwargs=form.template_kwargs is not None)
    parquet: Any = import_module("pyarrow.parquet")
    count = 0
    with _beside(file, Path.unlink) as temporary, temporary.open("xb") as stream:
        with parquet.ParquetWriter(stream, features.arrow_schema) as writer:
            for table in tables_of((conversation(recorded, form) for recorded in episodes), features):
                writer.write_table(table)
                count += table.num_rows
        _to_disk(stream)
    return count


def write_atif(
    episodes: Iterable[RecordedEpisode],
    folder: Path,
    form: ConversationForm = ConversationForm(),  # noqa: B008
) -> int:
    """Write a folder with an ATIF document for each episode, and the images that they show in `images`.

    Args:
        episodes: The episodes.
        folder: The folder; it must not exist.
        form: What is written of an episode.

    Returns:
        How many were written.

    Raises:
        ConfigurationError: The folder exists, or cannot be written.
        InvalidRequest: Of an episode, the first calls or the tools are not recorded any more.
    """
    if folder.exists():
        raise ConfigurationError(f"{folder} exists already: name a folder that does not")
    count = 0
    with _beside(folder, shutil.rmtree) as temporary:
        temporary.mkdir()
        for recorded in episodes:
            document, images = atif_document(recorded, form)
            for name, data in images.items():
                (temporary / name).parent.mkdir(exist_ok=True)
                (temporary / name).write_bytes(data)
            file = temporary / f"{recorded.trajectory.episode.episode_id}.json"
            with file.open("x", encoding="utf-8") as stream:
                json.dump(document, stream, ensure_ascii=False, indent=1)
                _to_disk(stream)
            count += 1
    return count


@contextmanager
def _beside(final: Path, remove: Callable[[Path], Any]) -> Generator[Path]:
    """A temporary name in the same folder. What is there at the end gets the final name; after an error it is removed.

    Raises:
        ConfigurationError: It cannot be written.
    """
    temporary = final.with_name(f".{final.name}.{secrets.token_hex(4)}.part")
    try:
        yield temporary
        temporary.replace(final)
    except OSError as error:
        raise ConfigurationError(f"{final} cannot be written: {error.strerror}") from None
    finally:
        if temporary.exists():
            remove(temporary)


def _to_disk(stream: Any) -> None:
    stream.flush()
    os.fsync(stream.fileno())
