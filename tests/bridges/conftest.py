"""The training bridge's tests need the extra `trl`; without it they are skipped, and `test_extra_trl` says why."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from extras import MISSING

THIRD_PARTY = (
    "ignore::DeprecationWarning",
    "ignore::FutureWarning",
    "ignore:.*experimental feature.*:UserWarning",
    "ignore:.*pin_memory.*:UserWarning",
)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    return True if MISSING and collection_path.name.startswith("test_trl") else None


# Where episodes are played is nothing to a training run: the tests of single episodes compare the places call by call.
# These files train; in process, only one run of each kind, and the others by `make test-slow`.
TRAINING = {
    *("test_trl_training", "test_trl_concurrency", "test_trl_combine", "test_trl_rollout", "test_trl_lost"),
    *("test_trl_scores", "test_trl_trackers"),
}
TRAINED_IN_PROCESS = {
    "test_three_lines_train",
    "test_up_to_the_end_of_an_episode_it_gives_what_the_stock_trainer_gives",
    "test_they_train_by_rollout_func",
    "test_a_rollout_function_plays_the_rows",
    "test_the_async_worker_plays_with_exact_schemas",
    "test_the_concurrent_trainer_takes_any_reward_function",
    "test_the_stock_trainer_takes_wrapped_reward_functions",
    "test_rollouts_are_finished",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and item.path.stem in TRAINING and hasattr(item, "callspec"):
            trained = item.originalname in TRAINED_IN_PROCESS
            if item.callspec.params.get("place") == "in process" and not trained:
                item.add_marker(pytest.mark.slow)
        if item.path.name.startswith("test_trl"):
            for warning in THIRD_PARTY:
                item.add_marker(pytest.mark.filterwarnings(warning))


@pytest.fixture(scope="session")
def gateway_url() -> Iterator[str]:
    from places import gateway

    with gateway() as serving:
        yield serving.url


@pytest.fixture(params=["in process", "gateway"])
def place(request: pytest.FixtureRequest) -> Any:
    from places import Place

    return Place() if request.param == "in process" else Place(request.getfixturevalue("gateway_url"))
