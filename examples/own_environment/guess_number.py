"""An environment of one's own: a number to guess."""

from typing import Annotated

from pydantic import Field

from envport import Environment, Step, tool


class GuessNumber(Environment):
    """Guess a number from 1 to 100. Every guess tells whether it was too low or too high."""

    max_steps = 10

    def reset(self, *, seed, task):
        self._secret = self.rng.randint(1, 100)
        return "I have chosen a number from 1 to 100."

    @tool
    def guess(self, number: Annotated[int, Field(ge=1, le=100)]) -> Step:
        """Guess the number."""
        if number == self._secret:
            return Step("That is it!", reward=1.0, terminated=True)
        return Step("Too low." if number < self._secret else "Too high.", reward=0.0)
