"""The figures with many episodes, killed clients and a flood of requests, in small: what must not go wrong does not."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec

import pytest
from patience import patient

pytestmark = pytest.mark.skipif(find_spec("aiohttp") is None, reason="needs the extra envport[bench]")


def figures(part: str) -> dict[str, float]:
    """What a part prints: by the words after the colon, the value."""
    command = [sys.executable, "-m", "envport.bench.crowds", "--quick", "--json", "--part", part]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patient(200), check=False)
    print(done.stdout)
    assert done.returncode in (0, 1), done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == any(figure["reached"] is False for figure in found), done.stderr
    return {figure["what"]: figure["value"] for figure in found}


def test_many_open_episodes_are_played_without_an_error():
    found = figures("open")
    assert len(found) == 9
    assert found["200 open episodes: errors"] == 0
    assert found["200 open episodes: still live at the end"] == 200
    assert found["200 open episodes: calls at half of that rate"] > 0
    p50, p99 = (found[f"200 open episodes: latency at half of the rate, p{of}"] for of in (50, 99))
    assert 0 < p50 <= p99
    assert found["200 open episodes: memory of the gateway (USS)"] > 10


@pytest.mark.slow
def test_nothing_is_left_of_clients_that_are_killed():
    found = figures("killed")
    assert len(found) == 8
    assert found["20 clients killed: their live episodes right after"] == 20
    assert found["20 clients killed: live episodes 5 s after the idle limit"] == 0
    assert found["20 clients killed: memory then, of that before"] < 120


@pytest.mark.slow
def test_a_flood_of_requests_meets_announced_refusals_only():
    found = figures("flood")
    assert len(found) == 8
    who = "4 clients for each of 4 places: "
    assert found[who + "any other error"] == 0
    assert found[who + "accepted and not played to their end"] == 0
    assert found[who + "live when all have gone"] == 0
    assert found[who + "refused with when to try again"] > 0
    # The target is 80, on a machine that does nothing else; the bench compares with it.
    assert found[who + "of what is played without the crowd"] > 0


def test_a_missed_target_is_said_and_the_exit_code_tells(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    from envport.bench import crowds
    from envport.bench.runtimes import Figure

    async def missing(plan: crowds.CrowdsPlan) -> list[Figure]:
        return [Figure("errors", 1, "calls", 0), Figure("calls", 1, "calls")]

    monkeypatch.setattr(crowds, "PARTS", {"open": missing})
    monkeypatch.setattr(sys, "argv", ["crowds"])
    assert crowds.main() == 1
    assert "MISSED" in capsys.readouterr().out
