"""Environments whose episodes are put back, copied, or cannot be."""

from __future__ import annotations

import json
import random
from typing import Any

from envport import Environment, Step, Task, ToolError, tool

STEPS = 8
FACTOR = 1_103_515_245


class Walk(Environment):
    """Deterministic: each step draws from `rng`. It ends after some steps."""

    deterministic = True
    steps = STEPS

    def reset(self, *, seed: int, task: Task | None) -> str:
        self._at, self._taken = self.rng.randrange(100), 0
        return f"at {self._at}"

    @tool
    def step(self, by: int = 1) -> Step[str]:
        """Take a step."""
        if by == 13:
            raise ToolError("13 is unlucky.")
        self._at += by + self.rng.randrange(10)
        self._taken += 1
        return Step(f"at {self._at}", reward=self._at / 100, terminated=self._taken >= self.steps)


class WalkInThread(Walk):
    runtime = "thread"


class WalkInProcess(Walk):
    runtime = "process"


class WalkInSandbox(Walk):
    runtime = "process"
    sandbox = True


class Dice(Environment):
    """Its state is not the seed's, and it has snapshots."""

    def reset(self, *, seed: int, task: Task | None) -> str:
        self._state = random.SystemRandom().randrange(2**31)
        return str(self._state)

    @tool
    def roll(self) -> Step[str]:
        """Go on to the next state."""
        self._state = rolled(self._state)
        return Step(str(self._state), reward=float(self._state % 6))

    @tool
    def drawn(self) -> float:
        """Draw from `rng`."""
        return self.rng.random()

    def snapshot(self) -> bytes:
        return json.dumps(self._state).encode()

    def restore(self, snapshot: bytes) -> None:
        self._state = json.loads(snapshot)


class DiceInThread(Dice):
    runtime = "thread"


class DiceInProcess(Dice):
    runtime = "process"


class DiceInSandbox(Dice):
    runtime = "process"
    sandbox = True


class AsyncDice(Dice):
    async def snapshot(self) -> Any:
        return super().snapshot()

    async def restore(self, snapshot: bytes) -> None:
        super().restore(snapshot)


class Coin(Environment):
    """Neither deterministic nor with snapshots."""

    def reset(self, *, seed: int, task: Task | None) -> str:
        return "heads or tails"

    @tool
    def flip(self) -> str:
        """Flip it."""
        return random.SystemRandom().choice(["heads", "tails"])


class Liar(Coin):
    """Says that it is deterministic."""

    deterministic = True

    @tool
    def flip(self) -> str:
        """Flip a coin with many sides."""
        return str(random.SystemRandom().randrange(2**60))


def rolled(state: int) -> int:
    """The state after another one."""
    return (state * FACTOR + 12_345) % 2**31
