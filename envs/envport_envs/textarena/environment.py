"""A game of TextArena as an environment of envport."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from envport import Environment, Step, Task, ToolDefinition, ToolError
from envport.errors import InvalidOption
from envport.types import LegalCall
from envport_envs.textarena.library import fresh, progress, rules_of
from envport_envs.textarena.randomness import EpisodeRandom

__all__ = ["TextArenaEnvironment"]

_MOST_LISTED = 30
_FEWEST_STEPS, _DEFAULT_STEPS = 20, 200


class TextArenaEnvironment(Environment):
    """A game of TextArena, with a tool for each kind of move, or the tool `act`.

    In a game for two players, the other one draws from its legal moves with equal chances, from the episode's seed.

    The reward comes with the end of the game. In a game for two players it is TextArena's: 1, 0 or -1. In a game for
    one player, TextArena's is 1 for a solution, and else tells how far the player has come. What it would give at the
    start is taken off: the reward is (reward - start) / (1 - start), and 0 if that is negative. A reward that TextArena
    gives below 0 is kept, down to -1.

    Args:
        id: The id of a game, such as `TowerOfHanoi-v0`.
        seat: Which player is played, from 0.
        error_allowance: How many invalid moves in a row are forgiven; the next one ends the game. TextArena's own is 1.
        max_steps: After how many calls an episode is truncated. If not given, it is twice TextArena's limit of turns,
            but at least 20; 5,000 in 2048, and 200 in other games without such a limit.
    """

    deterministic = True
    runtime = "thread"
    stalling = "a game against an opponent that is not played to its end earns 0: count it as lost where that matters"

    def __init__(
        self,
        id: str = "TowerOfHanoi-v0",
        seat: Annotated[int, Field(ge=0)] = 0,
        error_allowance: Annotated[int, Field(ge=0)] = 1,
        max_steps: Annotated[int, Field(ge=1)] | None = None,
    ):
        self._id = id
        self._rules = rules_of(id)
        if not 0 <= seat < self._rules.players:
            raise InvalidOption(f"textarena:{id} has no seat {seat}; its seats are 0 to {self._rules.players - 1}")
        self._seat = seat
        self._allowance = error_allowance
        self._game: Any = fresh(id)
        self._moves = {move.name: move for move in self._rules.moves(self._game)}
        turns: int | None = getattr(self._game, "max_turns", None)
        longest = max(_FEWEST_STEPS, 2 * turns) if turns else _DEFAULT_STEPS
        self.max_steps = max_steps or self._rules.max_steps or longest
        self.instructions = self._told()

    def tool_definitions(self) -> list[ToolDefinition]:
        """A tool for each kind of move."""
        return [move.tool("play") for move in self._moves.values()]

    def reset(self, *, seed: int, task: Task | None) -> str:
        """Set the game up, and play on until it is the player's turn."""
        self._game = fresh(self._id)
        self._random = EpisodeRandom(seed)
        with self._random.active():
            self._game.reset(num_players=self._rules.players, seed=seed)
            self._state: Any = self._game.state
            self._state.error_allowance = self._allowance
            self._start = progress(self._game)
            self._play_others()
        return self._seen()

    def play(self, name: str, arguments: Mapping[str, Any]) -> Step:
        """Make a move, and those of the other player after it."""
        with self._random.active():
            errors: int = self._state.error_count
            self._game.step(self._moves[name].written(arguments))
            if not self._state.done and self._state.error_count > errors:
                raise ToolError(self._seen() + self._allowed())
            self._play_others()
        if not self._state.done:
            return Step(self._seen(), reward=0.0)
        rewards, information = self._game.close()
        seen = "\n\n".join(filter(None, (self._seen(), str(information[self._seat].get("reason", "")))))
        return Step(seen, reward=self._reward(rewards), terminated=True)

    def legal_calls(self) -> list[LegalCall] | None:
        """The legal moves, or a sample of them; `None` if they are not known."""
        return self._rules.legal(self._game) or None

    def _play_others(self) -> None:
        while not self._state.done and self._state.current_player_id != self._seat:
            name, arguments = self.rng.choice(self._rules.legal(self._game))
            self._game.step(self._moves[name].written(arguments))

    def _reward(self, rewards: Mapping[int, Any]) -> float:
        given = float(rewards[self._seat])
        if self._rules.players > 1 or given < 0:
            return max(given, -1.0)
        return min(max(given - self._start, 0.0) / (1 - self._start), 1.0) if self._start < 1 else given

    def _seen(self) -> str:
        """What the game has told the player since the last time, with the last board only."""
        messages: list[tuple[int, str, Any]] = self._state.observations[self._seat]
        self._state.observations[self._seat] = []
        hidden = ("PLAYER_ACTION",) if "act" in self._moves else ("PLAYER_ACTION", "PROMPT")
        told = [(kind.name, text.strip()) for _, text, kind in messages if kind.name not in hidden]
        boards = [place for place, (kind, _) in enumerate(told) if kind == "GAME_BOARD"]
        shown = [text for place, (kind, text) in enumerate(told) if kind != "GAME_BOARD" or place == boards[-1]]
        return "\n\n".join(shown) or self._opening()

    def _opening(self) -> str:
        return "" if self._state.turn else "Make your first move."

    def _allowed(self) -> str:
        calls = self._rules.legal(self._game)
        if not 0 < len(calls) <= _MOST_LISTED:
            return ""
        return f"\n\nAllowed now: {', '.join(_written(call) for call in calls)}."

    def _told(self) -> str:
        rules = self._rules.rules(self._game)
        who = f" You are player {self._seat} of players 0 and 1." if self._rules.players > 1 else ""
        more = self._allowance
        invalid = f"{more + 1} invalid moves in a row end" if more else "An invalid move ends"
        return f"{rules}{who} Call {' or '.join(self._moves)} to make a move. {invalid} the game."


def _written(call: LegalCall) -> str:
    name, arguments = call
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"
