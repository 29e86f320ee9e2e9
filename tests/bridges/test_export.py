"""Recorded episodes as conversations and as trajectories of Harbor, without any trainer."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from apart import python_of
from recorded_plays import recorded_at

from envport import Client
from envport.errors import ConfigurationError, InvalidRequest, MissingExtra
from envport.trajectories.recorded import RecordedEpisode
from envport_bridges.export import (
    ConversationForm,
    atif_document,
    conversation,
    load_export,
    write_atif,
    write_jsonl,
    write_parquet,
)

pytest.importorskip("PIL.Image", reason="Pillow is not installed (extra images)")

PLAY = [
    ("guess", {"number": 0}),
    ("guess", {"number": "seven"}),
    ("ask", {"question": "Why?"}),
    ("guess", {"number": 1}),
]


@pytest.fixture(scope="module")
def recorded(gateway_url: str) -> RecordedEpisode:
    """A wrong guess, a call with invalid arguments, one that the environment refuses, and the right guess."""
    with Client(gateway_url) as client:
        handle = client.open("guess", split="train", task=1, seed=7, labels={"model": "tiny"}).episode_id
    return recorded_at(gateway_url, handle, PLAY)


@pytest.fixture(scope="module")
def pictured(gateway_url: str) -> RecordedEpisode:
    """Images in the first observation and in a tool's result."""
    with Client(gateway_url) as client:
        handle = client.open("pictures", seed=1).episode_id
    return recorded_at(gateway_url, handle, [("look", {})])


def test_an_episode_is_a_conversation_with_its_tools(recorded: RecordedEpisode, gateway_url: str):
    row = conversation(recorded)
    first, *turns = row["messages"]
    assert first == {"role": "user", "content": "Guess number 1.\n\n[seed 7]"}
    calls = [turn["tool_calls"][0]["function"] for turn in turns[::2]]
    assert calls == [{"name": name, "arguments": arguments} for name, arguments in (PLAY[0], *PLAY[2:])]
    assert all(turn["role"] == "assistant" and turn["content"] == "" for turn in turns[::2])
    said = "{'error': \"No answer to 'Why?'.\"}"
    assert [turn["content"] for turn in turns[1::2]] == ["Wrong.", said, "Right."]
    assert [(turn["role"], turn["name"]) for turn in turns[1::2]] == [("tool", call["name"]) for call in calls]
    with Client(gateway_url) as client:
        listed = client.environment("guess").tools
    assert [tool["function"] for tool in row["tools"]] == [
        {"name": tool["name"], "description": tool.get("description", ""), "parameters": tool["inputSchema"]}
        for tool in listed
    ]


def test_what_the_player_never_saw_is_in_columns_of_its_own(recorded: RecordedEpisode):
    row = conversation(recorded)
    told = json.dumps([row["messages"], row["tools"]])
    assert not any(word in told for word in ("reward", "0.75", "0.25", "terminated", "tiny"))
    assert (row["environment"], row["split"], row["task"], row["task_index"]) == ("guess", "train", "n1", 1)
    assert (row["seed"], row["reward"], row["rewards"]) == (7, 0.75, [-0.25, None, 1.0])
    assert (row["status"], row["reason"], row["fault"]) == ("terminated", "terminated", None)
    assert (row["steps"], row["errors"], row["episode_labels"]) == (3, 2, {"model": "tiny"})
    # TRL would take a column of one of these names for its own.
    assert not row.keys() & {"labels", "prompt", "completion", "text", "input_ids", "image", "images"}


def test_refused_calls_are_kept_if_that_is_asked_for(recorded: RecordedEpisode):
    messages = conversation(recorded, ConversationForm(refused=True, last_turn="Done."))["messages"]
    calls = [message["tool_calls"][0]["function"]["arguments"] for message in messages[1:-1:2]]
    assert calls == [arguments for _, arguments in PLAY]
    assert messages[4]["content"].startswith("{'error': ")
    assert messages[-1] == {"role": "assistant", "content": "Done."}


def test_images_are_parts_of_the_messages(pictured: RecordedEpisode):
    messages = conversation(pictured)["messages"]
    shown = pictured.trajectory.first_observation.content[1]["data"]
    assert messages[0]["content"] == [
        {"type": "text", "text": "Look at these.\n\n"},
        {"type": "text", "text": "a picture"},
        {"type": "image", "image": f"data:image/png;base64,{shown}"},
    ]
    # The second image is none, although it says so.
    assert [part["type"] for part in messages[2]["content"]] == ["image", "text"]
    assert messages[2]["content"][1]["text"] == "[unreadable image: image/png]"


def test_an_incomplete_recording_is_not_exported(recorded: RecordedEpisode, tmp_path: Path):
    trajectory = recorded.trajectory
    broken = trajectory.steps[0].model_copy(update={"error": "unreadable"})
    for spoiled, why in (
        (replace(recorded, trajectory=trajectory.model_copy(update={"dropped_steps": 2})), "first calls"),
        (replace(recorded, trajectory=trajectory.model_copy(update={"steps": [broken]})), "cannot be read"),
        (replace(recorded, tools=[]), "tools"),
    ):
        with pytest.raises(InvalidRequest, match=why):
            write_jsonl([recorded, spoiled], tmp_path / "episodes.jsonl")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("write", [write_jsonl, write_parquet, write_atif])
def test_an_export_that_breaks_off_leaves_nothing_under_its_name(recorded: RecordedEpisode, tmp_path: Path, write: Any):
    pytest.importorskip("datasets", reason="datasets is not installed (extra export)")
    file = tmp_path / "episodes"
    if write is not write_atif:
        file.write_text("what was there before")

    def breaking_off() -> Iterator[RecordedEpisode]:
        yield from [recorded] * (1 if write is write_atif else 1000)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(breaking_off(), file)
    assert [(path, path.read_text()) for path in tmp_path.iterdir()] == (
        [(file, "what was there before")] if write is not write_atif else []
    )
    file.unlink(missing_ok=True)
    assert write([recorded, recorded] if write is not write_atif else [recorded], file) == 1 + (write is not write_atif)
    assert list(tmp_path.iterdir()) == [file]


def test_what_cannot_be_written_is_said(recorded: RecordedEpisode, tmp_path: Path):
    with pytest.raises(ConfigurationError, match="No such file or directory"):
        write_jsonl([recorded], tmp_path / "missing" / "episodes.jsonl")
    with pytest.raises(ConfigurationError, match="exists already"):
        write_atif([recorded], tmp_path)


def test_a_missing_extra_is_named(recorded: RecordedEpisode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    write_jsonl([recorded], tmp_path / "episodes.jsonl")
    for work in (
        lambda: write_parquet([recorded], tmp_path / "episodes.parquet"),
        lambda: load_export(tmp_path / "episodes.jsonl"),
    ):
        with pytest.raises(MissingExtra, match=r"pip install 'envport\[export\]'"):
            work()


def test_what_is_no_export_is_said(tmp_path: Path):
    pytest.importorskip("datasets", reason="datasets is not installed (extra export)")
    (tmp_path / "broken.jsonl").write_text("{")
    for name, why in (("broken.jsonl", "no JSON"), ("missing.jsonl", "cannot be read"), ("rows.csv", r"\.parquet")):
        with pytest.raises(ConfigurationError, match=why):
            load_export(tmp_path / name)


def test_an_episode_is_a_trajectory_of_harbor(recorded: RecordedEpisode):
    document, images = atif_document(recorded, ConversationForm(refused=True))
    assert not images
    assert document["agent"]["model_name"] == "tiny"
    assert document["agent"]["tool_definitions"] == conversation(recorded)["tools"]
    first, *steps = document["steps"]
    assert (first["source"], first["message"]) == ("user", "Guess number 1.\n\n[seed 7]")
    assert [step["tool_calls"][0]["arguments"] for step in steps] == [arguments for _, arguments in PLAY]
    assert steps[0]["observation"]["results"] == [{"source_call_id": "call_1", "content": "Wrong."}]
    assert [step["extra"]["envport"].get("reward") for step in steps] == [-0.25, None, None, 1.0]
    assert steps[2]["extra"]["envport"]["error"] == "tool_error"
    assert document["extra"]["envport"]["reward"] == 0.75


def test_images_of_a_trajectory_of_harbor_are_files(pictured: RecordedEpisode, tmp_path: Path):
    assert write_atif([pictured], tmp_path / "atif") == 1
    (file,) = (tmp_path / "atif").glob("*.json")
    parts = json.loads(file.read_text())["steps"][0]["message"]
    shown = pictured.trajectory.first_observation.content[1]["data"]
    assert (tmp_path / "atif" / parts[2]["source"]["path"]).read_bytes() == base64.b64decode(shown)


def test_harbor_takes_its_trajectories(recorded: RecordedEpisode, pictured: RecordedEpisode, tmp_path: Path):
    python = python_of("harbor", "0.24.0", target=".venv/harbor/0.24.0")
    write_atif([recorded, pictured], tmp_path / "atif", ConversationForm(refused=True, last_turn="Done."))
    for file in (tmp_path / "atif").glob("*.json"):
        command = [python, "-m", "harbor.utils.trajectory_validator", file]
        checked = subprocess.run(command, capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stdout + checked.stderr
    spoiled = json.loads(file.read_text())
    spoiled["steps"][0]["step_id"] = 2
    file.write_text(json.dumps(spoiled))
    assert subprocess.run(command, capture_output=True, check=False).returncode == 1
