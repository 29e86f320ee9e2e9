"""The environments' figures and the printed completions arrive in a tracker, by TRL's own options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from places import Place
from test_trl_rollout import train as train_by_rollout_func
from test_trl_training import guess_up_to, logged, train

from envport_bridges.trl import ConcurrentGRPOTrainer, EnvironmentSpec

EXPECTED = {
    # Task 1 is found at the second guess, task 4 is not found.
    "envport/finished_episodes": 0.5,
    "envport/steps": 2.5,
    "envport/refused_calls": 0.0,
    "envport/lost_episodes": 0.0,
}


def test_figures_are_logged(place: Place, tmp_path: Path):
    spec = place.spec("guess", indices=[1, 4])
    runs = (
        train(tmp_path, spec, guess_up_to(3), ConcurrentGRPOTrainer),
        train_by_rollout_func(tmp_path, spec, guess_up_to(3)),
    )
    for trainer in runs:
        assert {name: logged(trainer, name) for name in EXPECTED} == {name: [value] for name, value in EXPECTED.items()}
        assert logged(trainer, "envport/seconds_waited")[0] > 0


def test_they_arrive_in_trackio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("trackio", reason="Trackio is not installed: pip install trackio")
    from trackio.sqlite_storage import SQLiteStorage

    # TRL imported it before this test, and it reads its folder's name only then.
    for module in ("utils", "sqlite_storage"):
        monkeypatch.setattr(f"trackio.{module}.TRACKIO_DIR", tmp_path / "trackio")
    options: dict[str, Any] = {"report_to": ["trackio"], "log_completions": True, "project": "p", "run_name": "r"}
    train(tmp_path, EnvironmentSpec("mirror:Guess", indices=[1, 4]), guess_up_to(3), ConcurrentGRPOTrainer, **options)
    assert (tmp_path / "trackio" / "p.db").exists()
    kept: dict[str, Any] = {}
    for row in SQLiteStorage.get_logs("p", "r"):
        kept |= row
    assert {name: kept[f"train/{name}"] for name in EXPECTED} == EXPECTED
    rows = kept["completions"]["_value"]
    assert len(rows) == 8
    assert "Guess number 1." in str(rows[0]["prompt"])
    assert "Right." in str(rows[0]["completion"])
