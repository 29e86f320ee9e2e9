"""Every loss has an owner, on the wire as well."""

import json
import pickle
from typing import get_args

import pytest
from pydantic import ValidationError

from envport import errors
from envport.errors import ConfigurationError, EnvportError, EpisodeFailed, EpisodeOver, MissingExtra, error_from_code
from envport.types import FaultOwner, Outcome


def outcome(**fields: object) -> Outcome:
    return Outcome.model_validate({"status": "failed", "reason": "worker_lost", "message": "gone", **fields})


@pytest.mark.parametrize(("owner", "lost"), [("player", False), ("environment", True), ("infrastructure", True)])
def test_only_a_fault_that_is_not_the_players_is_left_out(owner: FaultOwner, lost: bool):
    assert outcome(fault=owner).lost is lost
    assert outcome().lost is False


@pytest.mark.parametrize("owner", [None, *get_args(FaultOwner)])
def test_a_client_that_knows_no_owners_reads_infrastructure(owner: FaultOwner | None):
    wire = json.loads(outcome(fault=owner).model_dump_json())
    assert wire["infrastructure"] is (owner in ("environment", "infrastructure"))
    assert Outcome.model_validate(wire) == outcome(fault=owner)


def test_a_gateway_that_names_no_owner_is_understood():
    assert outcome(infrastructure=True).fault == "infrastructure"
    assert outcome(infrastructure=False).fault is None


def test_the_owner_decides_and_not_the_older_name():
    assert outcome(fault="player", infrastructure=True).lost is False
    assert outcome(fault=None, infrastructure=True).lost is False


def test_an_unknown_owner_is_refused():
    with pytest.raises(ValidationError, match="'player', 'environment' or 'infrastructure'"):
        outcome(fault="nobody")


@pytest.mark.parametrize(
    ("error", "owner"),
    [
        (error_from_code("episode_failed", "gone", fault="infrastructure"), "infrastructure"),
        (error_from_code("episode_failed", "gone", fault="environment"), "environment"),
        (error_from_code("episode_failed", "gone"), "environment"),
        (error_from_code("episode_over", "gone", fault="player"), "player"),
        (error_from_code("episode_over", "gone"), None),
    ],
)
def test_errors_carry_the_owner_through_a_wire_and_a_pickle(error: EnvportError, owner: FaultOwner | None):
    for one in (error, pickle.loads(pickle.dumps(error))):
        assert isinstance(one, EpisodeFailed | EpisodeOver)
        assert (str(one), one.fault) == ("gone", owner)


@pytest.mark.parametrize("name", [name for name in errors.__all__ if isinstance(getattr(errors, name), type)])
def test_every_error_comes_back_from_its_code_in_the_same_words(name: str):
    cls = getattr(errors, name)
    error = error_from_code(cls.code, "the gateway's words")
    assert str(error) == "the gateway's words"
    # What is missing there does not have to be installed here.
    assert type(error) is (ConfigurationError if cls is MissingExtra else cls)
