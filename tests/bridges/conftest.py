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
    *("test_trl_scores", "test_trl_trackers", "test_trl_formats", "test_trl_task_tools"),
}
TRAINED_IN_PROCESS = {
    "test_three_lines_train",
    "test_they_train_by_rollout_func",
    "test_a_rollout_function_plays_the_rows",
    "test_the_async_worker_plays_with_exact_schemas",
    # Each of these has the place and another thing as one parameter.
    "test_the_concurrent_trainer_takes_any_reward_function",
    "test_the_stock_trainer_takes_wrapped_reward_functions",
    "test_a_model_of_any_family_is_rewarded_for_a_right_call",
    # These train nothing.
    "test_an_environment_made_by_hand_takes_arguments_as_they_are",
    "test_rollouts_are_finished",
    "test_each_distinct_listing_has_one_factory",
    "test_a_row_with_another_tasks_tools_is_left_out",
    "test_rollouts_from_python_know_the_tools_of_their_episode",
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
