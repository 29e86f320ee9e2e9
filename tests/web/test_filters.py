"""The filters of an address become a filter of the store, or a message that says what is allowed."""

from __future__ import annotations

import time

import pytest

from envport.errors import InvalidRequest
from envport.trajectories import EpisodeFilter
from envport.web.filters import Asked

SAID = {
    "environment": "catch",
    "status": "terminated",
    "reason": "step_limit",
    "live": "no",
    "min_reward": "0.5",
    "max_reward": "1",
    "since": "2026-01-31T12:00",
    "until": "2026-02-01T00:00",
    "labels": "run=a, sample = 2",
    "principal": "somebody",
    "unknown": "left out",
}


def test_each_filter_is_applied():
    asked = Asked.of(SAID)
    found = asked.filter(None, rewards=True)
    assert found == EpisodeFilter(
        principal="somebody",
        environment="catch",
        status="terminated",
        reason="step_limit",
        live=False,
        min_reward=0.5,
        max_reward=1.0,
        since=1769860800.0,
        until=1769904000.0,
        labels={"run": "a", "sample": "2"},
    )
    assert "labels=run%3Da%2C+sample+%3D+2" in asked.address
    assert Asked.of({}).address == "/ui/episodes"
    assert Asked.of({"environment": " "}).filter(None, rewards=True) == EpisodeFilter()


def test_an_age_is_a_time_from_now():
    since = Asked.of({"age": "600"}).filter(None, rewards=True).since
    assert since is not None
    assert since == pytest.approx(time.time() - 600, abs=60)


def test_a_principal_sees_its_own_whatever_it_asks_for():
    assert Asked.of(SAID).filter("me", rewards=True).principal == "me"


@pytest.mark.parametrize(
    ("name", "value", "what"),
    [("min_reward", "0", "rewards"), ("max_reward", "0", "rewards"), ("labels", "a=b", "labels")],
)
def test_what_is_not_shown_cannot_be_found_out_by_filtering(name: str, value: str, what: str):
    with pytest.raises(InvalidRequest, match=f"your token does not show {what}"):
        Asked.of({name: value}).filter("me", rewards=False)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("status", "over", "status is 'over'; allowed: opening, running"),
        ("reason", "bored", "reason is 'bored'; allowed: terminated"),
        ("live", "maybe", "live is 'maybe'; allowed: yes, no"),
        ("min_reward", "much", "min_reward is 'much'; it has to be a number"),
        ("since", "yesterday", "since is 'yesterday'; it has to be like 2026-01-31T12:00"),
        ("labels", "run", "'run' is no label: write NAME=VALUE"),
        ("labels", "=a", "'=a' is no label"),
    ],
)
def test_what_cannot_be_read_is_told(name: str, value: str, said: str):
    with pytest.raises(InvalidRequest) as error:
        Asked.of({name: value}).filter(None, rewards=True)
    assert str(error.value).startswith(said)
