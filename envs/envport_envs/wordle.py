"""Wordle, with TextArena's game."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from typing import Annotated, Any

from pydantic import Field

from envport import Environment, Step, Task, TaskSource, ToolError, tool
from envport.errors import InvalidOption, MissingExtra
from envport.types import LegalCall
from envport_envs.lazy_tasks import LazyTasks, held_out
from envport_envs.textarena.randomness import LOCK, restored_random
from envport_envs.textarena.words import imported_game, without_downloads

__all__ = ["WordleEnvironment"]

_LETTERS = 5
_MOST_CALLS = 100
_SAMPLED_WORDS = 64
_PROMPT = (
    "Play Wordle. A secret English word of five letters has been chosen, and you have {guesses} guesses. Call "
    "guess with an English word of five letters. The reply says of each letter: G (right letter, right place), "
    "Y (the letter is in the word, in another place) or X (the letter is not in the word, or not once more). "
    "What is no English word, or was guessed before, is refused and costs no guess."
)


class WordleEnvironment(Environment):
    """Wordle: find a secret English word of five letters; each guess tells which letters are right.

    The game is that of TextArena 0.7 (MIT licence), with its dictionary, its feedback and its rewards: 1 for the
    word, and after the last guess the share of letters that this guess had right, where the right letter in the
    wrong place counts half. In TextArena the second invalid guess in a row ends the game; here an invalid guess
    is refused with TextArena's reason and costs a step, but no guess.

    A task is a secret word by its number. Every fifth word is held out of `train` and makes up `test`. Played
    without a task, the seed chooses the word.

    Needs the extra `textarena`, and no download: the words are those of the dictionary that TextArena ships.

    Args:
        guesses: How many guesses there are, 1 to 20.
    """

    deterministic = True
    runtime = "thread"
    max_steps = _MOST_CALLS

    def __init__(self, guesses: Annotated[int, Field(ge=1, le=20)] = 6):
        if find_spec("textarena") is None:
            raise MissingExtra("The wordle environment", "textarena")
        if not 1 <= guesses <= 20:
            raise InvalidOption(f"wordle: guesses is {guesses}; it has to be from 1 to 20")
        self._guesses = guesses

    def splits(self) -> Mapping[str, TaskSource]:
        """Words for training, and held-out words for testing."""
        prompt = _PROMPT.format(guesses=self._guesses)

        def make(number: int) -> Task:
            return Task(id=f"word-{number}", prompt=prompt, metadata={"word": number})

        # Shuffle with a fixed seed, so that the order is mixed but always the same.
        numbers = list(range(len(_rules().word_list)))
        random.Random(0).shuffle(numbers)
        return {
            split: LazyTasks([number for place, number in enumerate(numbers) if held_out(place, split)], make)
            for split in ("train", "test")
        }

    def reset(self, *, seed: int, task: Task | None) -> str:
        """Choose the secret word."""
        secrets = _rules().word_list
        number = task.metadata.get("word") if task is not None else None
        if number is None:
            number = self.rng.randrange(len(secrets))
        if type(number) is not int or not 0 <= number < len(secrets):
            raise ToolError(f"the task's word is {number!r}; it has to be a number from 0 to {len(secrets) - 1}")
        self._game = copy.copy(_rules())
        self._game.num_guesses = self._guesses
        # TextArena draws the secret word from this list.
        self._game.word_list = [secrets[number]]
        with restored_random():
            self._game.reset(num_players=1)
        self._game.state.error_allowance = math.inf
        self._game.get_observation()
        return f"Guess the word of {_LETTERS} letters. You have {self._guesses} guesses."

    @tool(read_only=False, destructive=False, open_world=False)
    def guess(self, word: Annotated[str, Field(pattern=r"^[A-Za-z]{5}$")]) -> Step:
        """Guess the secret word.

        Args:
            word: An English word of five letters.
        """
        with restored_random():
            done, _ = self._game.step(f"[{word}]")
        _, messages = self._game.get_observation()
        told = {kind.name: text for _, text, kind in messages}
        if "GAME_ADMIN" in told:
            raise ToolError(_reason(told["GAME_ADMIN"]))
        if not done:
            return Step(told["GAME_MESSAGE"], reward=0.0)
        rewards, information = self._game.close()
        view = self._game.state.game_state["player_view"]
        return Step(f"{view}\n{information[0]['reason']}", reward=float(rewards[0]), terminated=True)

    def cheats(self, task: Task | None) -> Mapping[str, Sequence[LegalCall]]:
        """Guess what is no word, which costs no guess, until the episode is cut off."""
        return {"what is no word": [("guess", {"word": "zzzzz"})] * _MOST_CALLS}

    def legal_calls(self) -> list[tuple[str, dict[str, str]]]:
        """Some of the words, the same ones at the same turn."""
        words = random.Random(self._game.state.turn).sample(_rules().word_list, _SAMPLED_WORDS)
        return [("guess", {"word": word}) for word in words]


def _reason(refusal: str) -> str:
    return refusal.partition("Reason: ")[2].partition(" Please resubmit")[0] or refusal


@cache
def _rules() -> Any:
    """TextArena's game with its word lists. Making one takes most of a second, so each episode copies this one."""
    with LOCK, without_downloads():
        return imported_game("textarena.envs.Wordle.env").WordleEnv(word_length=_LETTERS)
