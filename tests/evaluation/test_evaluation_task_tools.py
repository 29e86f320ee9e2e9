"""Tasks with tools of their own, as an evaluation shows and records them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from evaluating import address, calls, evaluate, says, scripted
from harness import running
from task_tools import TOOLS_OF, Toolbox

from envport import Client, Task, ToolDefinition
from envport.errors import InvalidOption
from envport.registry import EnvironmentDefinition
from envport_bridges.evaluation.comparison import compare_results
from envport_bridges.evaluation.results import Result


class Changed(Toolbox):
    """Lists the other tool for one of the tasks."""

    def tools_for(self, task: Task) -> Sequence[str | ToolDefinition] | None:
        return ["subtract"] if task.id == "one" else super().tools_for(task)


def test_a_model_is_shown_the_tools_of_the_task_and_results_say_which():
    shown: dict[str, list[str]] = {}

    def script(messages: list[Any], tools: list[Any]) -> Any:
        task = next(name for name in TOOLS_OF if f"Do {name}." in messages[0].text)
        shown[task] = [tool.name for tool in tools]
        return calls(("add", {"a": 1, "b": 1})) if len(messages) == 1 else says("Done.")

    with running(EnvironmentDefinition("toolbox", Toolbox)) as gateway, Client(gateway.url) as control:
        log = evaluate(address(gateway, "toolbox"), model=scripted(script))
        page = control.tasks("toolbox")
    result = Result.of(log)
    assert shown == TOOLS_OF
    assert {one.task.removeprefix("train/"): one.fingerprint for one in result.played} == {
        task.id: fingerprint for task, fingerprint in zip(page.tasks, page.fingerprints, strict=True)
    }


def test_results_with_other_tools_in_a_task_are_not_compared():
    results: list[Result] = []
    for cls in (Toolbox, Toolbox, Changed):
        with running(EnvironmentDefinition("toolbox", cls)) as gateway:
            results.append(Result.of(evaluate(address(gateway, "toolbox"), policy="noop")))
    first, same, changed = results
    assert compare_results(first, same).pairs == len(TOOLS_OF)
    assert first.identity.fingerprint == changed.identity.fingerprint
    with pytest.raises(InvalidOption, match="sample 'train/one' was played with different tools"):
        compare_results(first, changed, despite=["source"])
