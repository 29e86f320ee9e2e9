"""`envport episodes`: what a gateway recorded, after it has ended."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from command_line import Served, envport_here
from mcp import Client as McpClient
from patience import patient
from recorded import played, table_on

from envport import Client

THINGS = '''
import base64
import uuid

from envport import Environment, Step, Task, tool

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


class Things(Environment):
    """Does things."""

    def splits(self):
        return {"train": [Task(id="one", prompt="Do \\x1b[31mthings.")]}

    def reset(self, *, seed, task):
        return f"Seed {seed}. \\x1b[2J"

    @tool
    def say(self, words: str) -> Step[str]:
        """Say something."""
        return Step(f"You said {words}. \\x1b]0;title\\x07", reward=0.5, info={"length": len(words)})

    @tool
    def picture(self) -> list:
        """See a picture."""
        return ["Here:", PNG]

    @tool
    def roll(self) -> Step[str]:
        """Roll a die that is not drawn from the seed."""
        return Step(uuid.uuid4().hex, reward=1.0, terminated=True)
'''


@dataclass(frozen=True)
class Recorded:
    """A store and the handles of its episodes."""

    folder: Path
    reference: str
    said: str
    said_again: str
    rolled: str
    caught: str
    left: str

    def run(self, *words: str) -> Any:
        return envport_here("episodes", *words, "--store", str(self.folder))


async def play(url: str, calls: Sequence[tuple[str, dict[str, Any]]]) -> None:
    async with McpClient(url) as player:
        for tool, arguments in calls:
            await player.call_tool(tool, arguments)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    home = tmp_path_factory.mktemp("recorded")
    (home / "things.py").write_text(THINGS)
    reference, store = f"{home / 'things.py'}:Things", home / "episodes"
    handles: list[str] = []
    say, picture = ("say", {"words": "hello"}), ("picture", {})
    with Served(f"things={reference}", "catch", "--store", str(store)) as served, Client(served.url) as client:
        for name, calls, close in (
            ("things", [say, picture, ("say", {})], True),
            ("things", [("say", {"words": "goodbye"}), picture], True),
            ("things", [("roll", {})], True),
            ("catch", [("move", {"direction": "stay"})] * 9, True),
            ("catch", [], False),
        ):
            opened = client.open(name, seed=7, labels={"run": calls[0][0] if calls else "nothing"})
            asyncio.run(play(opened.mcp_url, calls))
            handles.append(opened.episode_id)
            if close and client.episode(opened.episode_id).outcome is None:
                client.finish(opened.episode_id)
        found = Recorded(store, reference, *handles)
        # A gateway writes to its database within a second.
        deadline = time.monotonic() + patient(30)
        while len(json.loads(found.run("list", "--json", "--ended").stdout)) < 4:
            assert time.monotonic() < deadline, "the episodes are not in the store"
        yield found


def handles_of(done: Any) -> list[str]:
    assert done.returncode == 0, done
    return [episode["episode_id"] for episode in json.loads(done.stdout)]


def test_episodes_are_listed_the_newest_first(recorded: Recorded):
    done = recorded.run("list")
    heading, *lines = done.stdout.splitlines()
    assert heading.split() == ["EPISODE", "ENVIRONMENT", "TASK", "SEED", "OUTCOME", "REWARD", "STEPS", "OPENED"]
    assert [line.split()[0] for line in lines] == [
        recorded.left,
        recorded.caught,
        recorded.rolled,
        recorded.said_again,
        recorded.said,
    ]
    assert lines[2].split()[1:7] == ["things", "train/one", "7", "terminated", "(terminated)", "1"]
    done = recorded.run("list", "--limit", "2")
    assert len(done.stdout.splitlines()) == 3
    assert "3 more" in done.stderr


def test_episodes_are_listed_as_json(recorded: Recorded):
    (episode,) = json.loads(recorded.run("list", "--json", "--label", "run=roll").stdout)
    assert (episode["episode_id"], episode["reward"], episode["steps"]) == (recorded.rolled, 1.0, 1)
    assert episode["outcome"]["reason"] == "terminated"
    assert episode["labels"] == {"run": "roll"}
    assert episode["principal"]


def test_filters_let_through_what_they_say(recorded: Recorded):
    for filters, found in (
        (["--environment", "things"], [recorded.rolled, recorded.said_again, recorded.said]),
        (["--environment", "nothing"], []),
        (["--status", "terminated", "--environment", "things"], [recorded.rolled]),
        (["--reason", "finished"], [recorded.said_again, recorded.said]),
        (["--live"], [recorded.left]),
        (["--fault", "player"], []),
        (["--lost"], []),
        (["--not-lost", "--ended", "--min-reward", "0.6", "--environment", "things"], [recorded.rolled]),
        (["--max-reward", "0.5", "--environment", "things"], [recorded.said_again, recorded.said]),
        (["--since", "1h", "--label", "run=say"], [recorded.said_again, recorded.said]),
        (["--until", "1h"], []),
        (["--until", "2020-01-01"], []),
        (["--since", "2020-01-01T00:00+01:00", "--label", "run=roll"], [recorded.rolled]),
        (["--principal", "somebody-else"], []),
    ):
        assert handles_of(recorded.run("list", "--json", *filters)) == found, filters


@pytest.mark.parametrize(
    ("filters", "said"),
    [
        (["--status", "won"], "--status is 'won'; allowed: opening, running"),
        (["--reason", "luck"], "--reason is 'luck'; allowed: terminated"),
        (["--since", "yesterday"], "--since is 'yesterday'; allowed: a date or time such as"),
        (["--label", "run"], "--label is 'run'; it has to be NAME=VALUE"),
    ],
)
def test_a_filter_that_is_wrong_says_what_is_allowed(recorded: Recorded, filters: list[str], said: str):
    done = recorded.run("list", *filters)
    assert done.returncode == 2
    assert said in done.stderr


def test_an_episode_is_shown_as_its_player_saw_it(recorded: Recorded, tmp_path: Path):
    done = recorded.run("show", recorded.said)
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert "\x07" not in done.stdout
    for shown in (
        f"{recorded.said}: things, version",
        "train",
        "Do \N{REPLACEMENT CHARACTER}[31mthings.",
        "Roll a die that is not drawn from the seed.",
        "Seed 7.",
        '1. say(words="hello")   [reward 0.5',
        "You said hello.",
        'info: {"length": 5}',
        "[image: image/png, 70 bytes]",
        "3. say()   [",
        "invalid_arguments",
        "ended: truncated (finished)",
        "Reward: 0.5",
    ):
        assert shown in done.stdout, (shown, done.stdout)
    done = recorded.run("show", recorded.said, "--images", str(tmp_path / "images"))
    (image,) = (tmp_path / "images").iterdir()
    assert image.suffix == ".png"
    assert f"[image: image/png, 70 bytes, {image}]" in done.stdout
    assert image.read_bytes().startswith(b"\x89PNG")


def test_an_episode_without_a_task_is_shown(tmp_path: Path):
    async def record() -> str:
        async with table_on(tmp_path) as (table, _):
            return await played(table, "count")

    handle = asyncio.run(record())
    done = envport_here("episodes", "show", handle, "--store", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert re.search(r"^ *task +none$", done.stdout, re.MULTILINE)
    assert "1. count()   " in done.stdout


def test_an_episode_is_shown_as_json(recorded: Recorded):
    shown = json.loads(recorded.run("show", recorded.said, "--json").stdout)
    assert [step["tool"] for step in shown["steps"]] == ["say", "picture", "say"]
    assert [tool["name"] for tool in shown["tools"]] == ["say", "picture", "roll"]
    assert shown["prompt"] == "Do \x1b[31mthings."
    assert shown["episode"]["episode_id"] == recorded.said


def test_two_episodes_are_compared(recorded: Recorded):
    done = recorded.run("diff", recorded.said, recorded.said_again)
    assert done.returncode == 1
    assert "differ first at call 1, at $.arguments.words:" in done.stdout
    assert '"hello"' in done.stdout
    assert '"goodbye"' in done.stdout
    done = recorded.run("diff", recorded.said, recorded.said, "--json")
    assert (done.returncode, json.loads(done.stdout)) == (0, {"equal": True, "difference": None})


def test_an_episode_is_played_again(recorded: Recorded):
    done = recorded.run("replay", recorded.caught)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Equal: the first observation and all 9 calls." in done.stdout
    done = recorded.run("replay", recorded.said, "--with", recorded.reference)
    assert done.returncode == 0, done


def test_a_replay_that_differs_names_the_call_and_the_path(recorded: Recorded):
    done = recorded.run("replay", recorded.rolled, "--with", recorded.reference, "--json")
    assert done.returncode == 1
    (episode,) = json.loads(done.stdout)["episodes"]
    assert not episode["equal"]
    found = episode["difference"]
    assert (found["step"], found["path"]) == (1, "$.observation.content[0].text")
    assert found["first"] != found["second"]
    done = recorded.run("replay", recorded.caught, "--with", "catch?render=words")
    assert done.returncode == 1
    assert "differ first at the first observation, at $.content[0].text:" in done.stdout
    assert "--with 'catch?...'" in done.stderr


def test_many_replays_give_a_score_of_each_environment(recorded: Recorded):
    done = recorded.run("replay", "--all", "--environment", "things", "--with", recorded.reference)
    assert done.returncode == 1
    assert "things: 2 of 3 replays are equal (66.7%)" in done.stdout
    assert f"1 differ first at call 1, at $.observation.content[0].text: {recorded.rolled}" in done.stdout
    done = recorded.run("replay", "--all", "--environment", "catch", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["environments"]["catch"] == {
        "replayed": 2,
        "equal": 2,
        "determinism": 1.0,
        "not_replayed": 0,
    }


def test_what_cannot_be_replayed_is_refused(recorded: Recorded):
    for words, said in (
        ((recorded.said,), "things"),
        ((recorded.said, "--with", "catch"), "split"),
        ((), "give the handle of an episode, or --all"),
        ((recorded.said, "--all"), "give the handle of an episode, or --all"),
        (("--all", "--environment", "nothing"), "no episode was replayed"),
        (("ep_unknown",), "ep_unknown"),
    ):
        done = recorded.run("replay", *words)
        assert done.returncode == 2, (words, done)
        assert said in done.stderr, (words, done)
        assert "Traceback" not in done.stderr


def test_episodes_are_exported(recorded: Recorded, tmp_path: Path):
    file = tmp_path / "good.jsonl"
    pytest.importorskip("PIL.Image", reason="Pillow is not installed (extra images)")
    done = recorded.run("export", str(file), "--environment", "things", "--label", "run=say", "--last-turn", "Done.")
    assert done.returncode == 0, done
    assert f"Exported 2 episodes to {file}." in done.stdout
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [row["episode_id"] for row in rows] == [recorded.said_again, recorded.said]
    # The refused call is left out.
    assert [message["role"] for message in rows[1]["messages"]] == [*["user", *["assistant", "tool"] * 2], "assistant"]
    assert [tool["function"]["name"] for tool in rows[0]["tools"]] == ["say", "picture", "roll"]
    done = recorded.run("export", str(tmp_path / "trajectories"), "--format", "atif", "--max-reward", "0.5")
    assert done.returncode == 0, done
    assert {path.name for path in (tmp_path / "trajectories").iterdir()} >= {f"{recorded.said}.json", "images"}


def test_nothing_found_is_told_with_the_reason(recorded: Recorded, tmp_path: Path):
    assert "No episode is recorded that fits." in recorded.run("list", "--environment", "nothing").stdout
    missing = recorded.run("show", "ep_never_was")
    assert missing.returncode == 2
    assert "A running gateway writes to it once a second" in missing.stderr

    async def begin() -> None:
        async with table_on(tmp_path):
            pass

    asyncio.run(begin())
    empty = envport_here("episodes", "list", "--store", str(tmp_path))
    assert empty.stdout.startswith("No episode is recorded. A running gateway writes to its store once a second.")


def test_an_export_of_nothing_is_none(recorded: Recorded, tmp_path: Path):
    for words, said in (
        ((str(tmp_path / "a.jsonl"), "--min-reward", "9"), "no episode fits"),
        ((str(tmp_path / "a.csv"),), "does not say in which format"),
        ((str(tmp_path / "a.jsonl"), "--format", "csv"), "--format is 'csv'; allowed: jsonl, parquet, atif"),
        ((str(tmp_path / "a.jsonl"), "--chat-template-kwargs", "[]"), "it has to be a JSON object"),
        ((str(tmp_path / "missing" / "a.jsonl"),), "cannot be written"),
    ):
        done = recorded.run("export", *words)
        assert done.returncode == 2, (words, done)
        assert said in done.stderr, (words, done)
    assert not list(tmp_path.iterdir())


def test_the_store_is_found(recorded: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ENVPORT_STORE", raising=False)
    done = envport_here("episodes", "list")
    assert done.returncode == 2
    assert "no store is named: give --store FOLDER_OR_URL or set ENVPORT_STORE" in done.stderr
    (tmp_path / "envport.toml").write_text(f'[serve]\nstore = "{recorded.folder}"\n')
    assert len(envport_here("episodes", "list").stdout.splitlines()) == 6
    monkeypatch.setenv("ENVPORT_STORE", str(tmp_path / "other"))
    assert envport_here("episodes", "list").returncode == 2
    assert envport_here("episodes", "show", "ep_unknown", "--store", str(recorded.folder)).returncode == 2


def test_help_names_all_commands():
    done = envport_here("episodes", "--help")
    assert done.returncode == 0
    for name in ("list", "show", "replay", "diff", "export"):
        assert f" {name} " in done.stdout
    assert "episodes" in envport_here("--help").stdout
