"""Wordle: TextArena's rules, without its downloads, its global state and its leaks."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

pytest.importorskip("textarena")

from opening import open_episode

from envport.episodes import Episode, Episodes
from envport.errors import InvalidArguments, InvalidOption, MissingExtra
from envport.registry import load
from envport_envs import wordle


@asynccontextmanager
async def table(reference: str = "wordle") -> AsyncIterator[Episodes]:
    episodes = Episodes({"wordle": load(reference)})
    async with episodes.run():
        yield episodes


async def opened(episodes: Episodes, **wanted: Any) -> Episode:
    return await open_episode(episodes, "wordle", **wanted)


def secret_of(episode: Episode) -> str:
    task = episode.start.task
    assert task is not None
    return str(wordle._rules().word_list[task.metadata["word"]])


def feedback(secret: str, guess: str) -> str:
    """The rules of Wordle, written once more."""
    left = [letter for letter, guessed in zip(secret, guess, strict=True) if letter != guessed]
    said: list[str] = []
    for letter, guessed in zip(secret, guess, strict=True):
        if letter == guessed:
            said.append("G")
        elif guessed in left:
            left.remove(guessed)
            said.append("Y")
        else:
            said.append("X")
    return " ".join(said)


GUESSES = ["crane", "slate", "house", "apple", "tiger", "llama", "eerie"]


async def test_the_feedback_is_that_of_wordle() -> None:
    async with table() as episodes:
        for task in range(30):
            episode = await opened(episodes, split="test", task=task)
            secret = secret_of(episode)
            for number, guess in enumerate([word for word in GUESSES if word != secret][:5]):
                result = await episode.call("guess", {"word": guess})
                lines = result.observation.text.splitlines()
                assert lines[2:4] == [" ".join(guess.upper()), feedback(secret, guess)]
                assert lines[4] == f"You have {5 - number} guesses left."
                assert (result.reward, result.terminated) == (0.0, False)


@pytest.mark.parametrize("spelling", [str.lower, str.upper, str.title])
async def test_the_word_wins(spelling: Any) -> None:
    async with table() as episodes:
        episode = await opened(episodes, task=3)
        result = await episode.call("guess", {"word": spelling(secret_of(episode))})
        assert (result.reward, result.terminated) == (1.0, True)
        assert "Congratulations" in result.observation.text
        assert "G G G G G" in result.observation.text


async def test_the_last_guess_is_rewarded_by_what_it_had_right() -> None:
    async with table("wordle?guesses=2") as episodes:
        episode = await opened(episodes, task=0)
        secret = secret_of(episode)
        first, last = [word for word in GUESSES if word != secret][:2]
        await episode.call("guess", {"word": first})
        result = await episode.call("guess", {"word": last})
        said = feedback(secret, last)
        assert result.reward == pytest.approx((said.count("G") + said.count("Y") / 2) / 5)
        assert result.terminated
        assert secret in result.observation.text


async def test_a_guess_that_is_not_allowed_costs_no_guess() -> None:
    async with table() as episodes:
        episode = await opened(episodes, task=0)
        secret = secret_of(episode)
        guess = next(word for word in GUESSES if word != secret)
        await episode.call("guess", {"word": guess})
        for word, complaint in (
            (guess, "already guessed"),
            ("xxxxx", "'xxxxx' is not an English word."),
            ("qqqqq", "not"),
        ):
            for _ in range(3):
                result = await episode.call("guess", {"word": word})
                assert result.is_error
                assert complaint in result.observation.text
        for word in ("", "four", "sixsix", "cra ne", "cr4ne", "[ran]", "crane]", "äpfel", "crane\n", 5, None):
            with pytest.raises(InvalidArguments, match="'word'"):
                await episode.call("guess", {"word": word})
        other = next(word for word in GUESSES if word not in (secret, guess))
        result = await episode.call("guess", {"word": other})
        assert "You have 4 guesses left." in result.observation.text


async def test_the_secret_is_nowhere_to_be_seen_before_the_end() -> None:
    async with table() as episodes:
        spec = episodes.environment("wordle")
        for index in range(0, 600, 20):
            episode = await opened(episodes, split="test", task=index)
            secret = secret_of(episode)
            if secret in GUESSES:
                continue
            seen = [str(spec.listing), spec.description, episode.prompt, str(episode.first_observation)]
            seen.append(episode.info().model_dump_json())
            for guess in [*GUESSES[:5], "xxxxx"]:
                seen.append(str((await episode.call("guess", {"word": guess})).observation))
            words = {word.strip(".,'\"[]()").lower() for text in seen for word in text.split()}
            # A secret may be an ordinary word of the prompt; it must not be there because it is the secret.
            ordinary = {word.strip(".,'\"[]()").lower() for word in (episode.prompt + spec.description).split()}
            assert secret not in words - ordinary


async def test_splits_are_apart_mixed_and_the_same_for_everyone() -> None:
    async with table() as episodes:
        spec = episodes.environment("wordle")
        numbers = {
            split: [spec.task(split, index).metadata["word"] for index in range(spec.num_tasks(split))]
            for split in ("train", "test")
        }
        assert sorted(numbers["train"] + numbers["test"]) == list(range(3416))
        assert len(numbers["test"]) == 684
        # The first tasks are not all words with the same first letter.
        assert len({wordle._rules().word_list[number][0] for number in numbers["test"][:20]}) > 5
        assert [spec.task("test", index).id for index in range(3)] == ["word-455", "word-453", "word-1593"]


async def test_twenty_interleaved_games_are_what_each_is_alone() -> None:
    async def play(episodes: Episodes, seed: int, log: list[str]) -> None:
        episode = await opened(episodes, seed=seed)
        log.append(episode.first_observation.text)
        for guess in ["xxxxx", *GUESSES[:6]]:
            if episode.live:
                log.append((await episode.call("guess", {"word": guess})).observation.text)

    async with table() as episodes:
        alone: list[list[str]] = [[] for _ in range(20)]
        for seed in range(20):
            await play(episodes, seed, alone[seed])
        together: list[list[str]] = [[] for _ in range(20)]
        async with anyio.create_task_group() as tasks:
            for seed in range(20):
                tasks.start_soon(play, episodes, seed, together[seed])
        assert together == alone
        assert len({log[-1] for log in alone}) > 15


async def test_the_global_random_state_is_left_as_it_was() -> None:
    async with table() as episodes:
        random.seed(1)
        before = random.getstate()
        episode = await opened(episodes, seed=3)
        await episode.call("guess", {"word": "crane"})
        assert random.getstate() == before


@pytest.mark.slow
def test_nltk_is_left_as_it_was_and_nothing_is_downloaded() -> None:
    code = """
import sys, socket, nltk, nltk.corpus
def refuse(*args, **kwargs): raise AssertionError("the network was touched")
socket.socket.connect = socket.getaddrinfo = refuse
before = nltk.download, nltk.pos_tag, nltk.corpus.words
from envport.registry import load
spec = load("wordle")
assert (nltk.download, nltk.pos_tag, nltk.corpus.words) == before
print(spec.num_tasks("train"), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "2732\n")


def test_without_textarena_one_is_told_which_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "textarena", None)
    with pytest.raises(MissingExtra) as caught:
        load("wordle")
    assert str(caught.value) == (
        "The wordle environment needs a package that is not installed: pip install 'envport[textarena]'"
    )


@pytest.mark.parametrize("guesses", ["0", "21", "many"])
def test_wrong_options_are_said_plainly(guesses: str) -> None:
    with pytest.raises(InvalidOption, match="'guesses'"):
        load(f"wordle?guesses={guesses}")
