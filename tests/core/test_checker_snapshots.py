"""What the checker and the class itself find wrong with `snapshot`, `restore` and `deterministic`."""

from __future__ import annotations

import itertools
import json
from typing import Any, ClassVar

import pytest
import resumed_environments

from envport import Environment, Task, tool
from envport.checker import check_environment
from envport.definition import EnvironmentDefinition
from envport.errors import InvalidEnvironment
from envport.runtimes import runtime_for


class Sums(Environment):
    """Adds up what it draws."""

    deterministic = True

    def reset(self, *, seed: int, task: Task | None) -> str:
        self._sum, self._calls = self.rng.randrange(10), 0
        return str(self._sum)

    @tool
    def add(self) -> int:
        """Add."""
        self._calls += 1
        self._sum += self.rng.randrange(10) + self._calls
        return self._sum

    def snapshot(self) -> Any:
        return json.dumps([self._sum, self._calls]).encode()

    def restore(self, snapshot: bytes) -> None:
        self._sum, self._calls = json.loads(snapshot)


class Forgetful(Sums):
    def restore(self, snapshot: bytes) -> None:
        self._sum, _ = json.loads(snapshot)


class Disturbed(Sums):
    def snapshot(self) -> Any:
        self._calls += 1
        return super().snapshot()


class Kept(Sums):
    """Its snapshots mean something in the process that made them only."""

    states: ClassVar[dict[int, Any]] = {}
    numbers: ClassVar = itertools.count()

    def snapshot(self) -> Any:
        number = next(self.numbers)
        self.states[number] = (self._sum, self._calls)
        return str(number).encode()

    def restore(self, snapshot: bytes) -> None:
        self._sum, self._calls = self.states[int(snapshot)]


class Wordy(Sums):
    def snapshot(self) -> Any:
        return {"sum": self._sum}


class Broken(Sums):
    def restore(self, snapshot: bytes) -> None:
        raise RuntimeError("no way back")


WRONG = {
    Forgetful: r"\[snapshot\] seed 0: in a new instance, after restore\(\) at call 15, the reply of add\(\{\}\) was",
    Disturbed: r"\[snapshot\] seed 0: after snapshot\(\), the reply of add\(\{\}\) was",
    Wordy: r"\[snapshot\] seed 0: copying the episode fails: .*snapshot\(\) has to return bytes, not dict",
    Broken: r"\[snapshot\] seed 0: copying the episode fails: .*no way back",
}


def check(cls: type[Environment], **options: Any) -> None:
    check_environment(cls, seeds=(0,), another_process=False, **options)


@pytest.mark.parametrize("cls", [*WRONG, Sums])
def test_what_is_wrong_with_snapshots_is_found(cls: type[Environment]) -> None:
    if cls is Sums:
        check(cls)
        return
    with pytest.raises(InvalidEnvironment) as found:
        check(cls)
    assert found.match(WRONG[cls])


def test_a_snapshot_has_to_mean_something_in_another_process() -> None:
    check(Kept)
    with pytest.raises(InvalidEnvironment, match=r"\[snapshot\] seed 0: copying the episode fails"):
        check_environment(Kept, seeds=(0,))


def test_a_wrong_declaration_is_found() -> None:
    with pytest.raises(InvalidEnvironment, match="or do not declare deterministic = True"):
        check(resumed_environments.Liar)
    with pytest.raises(InvalidEnvironment) as undeclared:
        check(resumed_environments.Coin)
    assert "deterministic" not in str(undeclared.value)


def test_the_class_says_what_it_may_not_declare() -> None:
    with pytest.raises(InvalidEnvironment, match=r"has only one of snapshot\(\) and restore\(\): it needs both"):
        type("Half", (Sums,), {"restore": Environment.restore})
    with pytest.raises(InvalidEnvironment, match="deterministic is 1; allowed: True or False"):
        type("Number", (Sums,), {"deterministic": 1})
    for name in ("snapshot", "restore"):
        with pytest.raises(InvalidEnvironment, match=f"{name} is a tool, but the gateway calls {name}.. to .* the sta"):
            type("Tool", (Sums,), {name: tool(lambda self: "")})


def test_neither_is_among_the_tools() -> None:
    assert list(EnvironmentDefinition("sums", Sums).tools) == ["add"]


@pytest.mark.parametrize("kind", ["inline", "thread", "process"])
async def test_a_snapshot_of_one_runtime_is_put_back_in_another(kind: Any) -> None:
    spec = EnvironmentDefinition("sums", Sums)
    here, there = runtime_for("inline"), runtime_for(kind)
    try:
        first, second = await here.open(spec), await there.open(spec)
        await first.reset(seed=1, task=None)
        await second.reset(seed=1, task=None)
        for _ in range(3):
            await first.call("add", {}, None)
        for giver, taker in ((first, second), (second, first)):
            await taker.restore(await giver.snapshot())
            assert await taker.call("add", {}, None) == await giver.call("add", {}, None)
        with pytest.raises(Exception, match="this is no snapshot"):
            await second.restore(b"?")
        await first.close()
        await second.close()
    finally:
        await there.drain()
        await here.drain()
