"""The words that TextArena's games need, from the dictionary that it ships instead of nltk's downloads."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.resources import files
from itertools import product
from typing import Any

__all__ = ["imported_game", "without_downloads"]


class _ShippedWords:
    """Replaces nltk's corpus of words, which would need a download."""

    def words(self, fileids: str | None = None) -> list[str]:
        """The plain lower-case words of the dictionary that TextArena ships, in order."""
        return list(_shipped_words())


@cache
def _shipped_words() -> tuple[str, ...]:
    text = files("textarena.envs.utils.data").joinpath("en_US.dic").read_text("utf-8")
    words = {line.partition("/")[0].strip() for line in text.splitlines()[1:]}
    return tuple(sorted(word for word in words if word.isascii() and word.isalpha() and word.islower()))


def _all_nouns(words: Sequence[str]) -> list[tuple[str, str]]:
    """Replaces nltk's tagger, whose model would need a download."""
    return [(word, "NN") for word in words]


def _no_download(*args: Any, **kwargs: Any) -> bool:
    return True


@contextmanager
def without_downloads() -> Generator[None]:
    """Replace what nltk would download, until the end. Hold the lock of `randomness` meanwhile."""
    nltk: Any = import_module("nltk")
    corpus: Any = import_module("nltk.corpus")
    before = nltk.download, nltk.pos_tag, corpus.words
    nltk.download, nltk.pos_tag, corpus.words = _no_download, _all_nouns, _ShippedWords()
    try:
        yield
    finally:
        nltk.download, nltk.pos_tag, corpus.words = before


def imported_game(path: str) -> Any:
    """Import a module of TextArena, without a download. Hold the lock of `randomness` meanwhile.

    Args:
        path: The module's full name.
    """
    with without_downloads():
        game: Any = import_module(path)
        lists: Any = import_module("textarena.envs.utils.word_lists")
    # Other code may have imported these modules before, with the original lists.
    for module, (name, shipped) in product((game, lists), (("words", _ShippedWords()), ("pos_tag", _all_nouns))):
        if hasattr(module, name):
            setattr(module, name, shipped)
    return game
