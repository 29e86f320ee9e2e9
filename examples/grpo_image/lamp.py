"""A lamp shines in one of four colours, and only the picture says in which."""

from __future__ import annotations

from typing import Annotated, Literal

from PIL import Image
from pydantic import Field

from envport import Environment, Step, Task, tool

COLOURS = {"red": (225, 45, 45), "green": (45, 200, 60), "blue": (50, 80, 230), "yellow": (235, 215, 50)}
SIDE, SMALLEST, LARGEST = 32, 16, 28


class Lamp(Environment):
    """Look at the picture and name the colour of the lamp.

    Args:
        dark: Show the same dark picture in every episode, so that nothing can be learned.
    """

    max_steps = 1

    def __init__(self, dark: Annotated[bool, Field(description="Show nothing.")] = False):
        self._dark = dark

    def reset(self, *, seed: int, task: Task | None) -> Image.Image:
        self._colour = self.rng.choice(list(COLOURS))
        return Image.new("RGB", (SIDE, SIDE)) if self._dark else self._picture()

    def _picture(self) -> Image.Image:
        noise = bytes(self.rng.randrange(60) for _ in range(SIDE * SIDE * 3))
        picture = Image.frombytes("RGB", (SIDE, SIDE), noise)
        size = self.rng.randint(SMALLEST, LARGEST)
        left, top = (self.rng.randint(0, SIDE - size) for _ in range(2))
        shade = self.rng.uniform(0.7, 1.0)
        colour = tuple(round(shade * part) for part in COLOURS[self._colour])
        picture.paste(colour, (left, top, left + size, top + size))
        return picture

    @tool(read_only=False, destructive=False, idempotent=False, open_world=False)
    def answer(self, colour: Literal["red", "green", "blue", "yellow"]) -> Step:
        """Name the colour of the lamp.

        Args:
            colour: The colour.
        """
        # The same words either way: the reward alone says whether it was right.
        return Step("Noted.", reward=float(colour == self._colour), terminated=True)
