"""A game of OpenSpiel as an environment of envport."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import Field

from envport import Environment, Step, Task, ToolDefinition, ToolError
from envport.environment import ToolHints
from envport.errors import InvalidOption
from envport_envs.openspiel.library import advance, loaded, named

__all__ = ["OpenSpielEnvironment", "checked_seat"]

_SHOWN_MOVES = 100
_DEALS = 100
_FEWEST_STEPS, _MOST_STEPS = 20, 1_000
_PLAIN = ToolHints(read_only=False, destructive=False, idempotent=False, open_world=False)
_LOOKING = ToolHints(read_only=True, open_world=False)

# What the engine shows of these games is too short to be understood.
_NOTES = {
    "kuhn_poker": (
        "There is one card for each player and one more, from 0 up; the highest wins. Each player has put 1 in, and "
        "may bet 1 more. You see your card, then what each player has put in: 211 is card 2, 1 of player 0 and 1 of "
        "player 1."
    ),
    "leduc_poker": (
        "The cards are 0 to 5, two of each rank: 0 and 1, 2 and 3, 4 and 5. A pair with the public card wins, else the "
        "higher rank."
    ),
}


class OpenSpielEnvironment(Environment):
    """A game of OpenSpiel, with the tool `move`.

    Moves have the engine's names, and every reply lists the legal ones. The other players and chance are drawn from the
    episode's seed; the other players choose among their legal moves with equal chances. Games that are over before the
    player's first turn are dealt again.

    The reward of a move is what it, and the moves of others after it, change in the player's returns. So the rewards of
    an episode add up to the game's return.

    Args:
        game: Name of the game, with parameters if need be: `go(board_size=5)`.
        seat: Which player is played, from 0.
        max_steps: After how many calls an episode is truncated. If not given, it is twice the longest game, but at
            least 20 and at most 1,000.
        moves: The names of all actions, if they do not depend on the state. The scheme `openspiel:` finds them.
    """

    deterministic = True
    runtime = "thread"
    stalling = "a game that is not played to its end earns what it has paid so far: count it as lost where that matters"

    def __init__(
        self,
        game: str = "tic_tac_toe",
        seat: Annotated[int, Field(ge=0)] = 0,
        max_steps: Annotated[int, Field(ge=1)] | None = None,
        moves: list[str] | None = None,
    ):
        self._game = loaded(game)
        self._seat = checked_seat(game, self._game, seat)
        self._names = moves
        longest = 2 * int(self._game.max_game_length())
        self.max_steps = max_steps or min(max(_FEWEST_STEPS, longest), _MOST_STEPS)
        self.instructions = self._rules(game.partition("(")[0])

    def tool_definitions(self) -> list[ToolDefinition]:
        """The tool `move`; also `legal_moves` where there may be too many to be listed in every reply."""
        move: dict[str, Any] = {"type": "string", "description": "One of the moves that are legal now."}
        if self._names is not None:
            move["enum"] = self._names
        tools = [ToolDefinition("move", _object(move=move), "move", "Make a move.", hints=_PLAIN)]
        if self._game.num_distinct_actions() > _SHOWN_MOVES:
            tools.append(ToolDefinition("legal_moves", _object(), "list", "List all legal moves.", hints=_LOOKING))
        return tools

    def reset(self, *, seed: int, task: Task | None) -> str:
        """Deal, and play on until it is the player's turn."""
        for _ in range(_DEALS):
            self._state = self._game.new_initial_state()
            self._returned = 0.0
            advance(self._state, self._seat, self.rng)
            if not self._state.is_terminal():
                return self._seen()
        raise ToolError(f"{_DEALS} games were over before player {self._seat} had a turn")

    def move(self, name: str, arguments: Mapping[str, Any]) -> Step:
        """Make a move, and draw what follows it."""
        legal = self._legal()
        if not legal:
            raise ToolError("The game is over.")
        action = legal.get(arguments["move"])
        if action is None:
            raise ToolError(f"{arguments['move'][:80]!r} is not legal now. {self._listed(legal)}")
        self._state.apply_action(action)
        advance(self._state, self._seat, self.rng)
        over = bool(self._state.is_terminal())
        before, self._returned = self._returned, float(self._state.returns()[self._seat])
        return Step(self._seen(), reward=self._returned - before, terminated=over)

    def list(self, name: str, arguments: Mapping[str, Any]) -> str:
        """All legal moves."""
        return _quoted(self._legal()) or "The game is over."

    def legal_calls(self) -> list[tuple[str, dict[str, str]]]:
        """The legal moves."""
        return [("move", {"move": name}) for name in self._legal()]

    def _legal(self) -> dict[str, int]:
        return {} if self._state.is_terminal() else named(self._state, self._seat, self._names)

    def _seen(self) -> str:
        # Never `str(state)`: it shows what is hidden from the seat.
        if self._game.get_type().provides_observation_string:
            seen = self._state.observation_string(self._seat)
        else:
            seen = self._state.information_state_string(self._seat)
        told = "The game is over." if self._state.is_terminal() else self._listed(self._legal())
        return f"{str(seen).rstrip()}\n\n{told}"

    def _listed(self, legal: Mapping[str, int]) -> str:
        shown = [*legal][:_SHOWN_MOVES]
        more = f", and {len(legal) - len(shown)} more: call legal_moves" if len(legal) > len(shown) else ""
        return f"Your legal moves: {_quoted(shown)}{more}."

    def _rules(self, name: str) -> str:
        players = int(self._game.num_players())
        who = f" You are player {self._seat} of players 0 to {players - 1}." if players > 1 else ""
        note = f" {_NOTES[name]}" if name in _NOTES else ""
        return f"Play {self._game.get_type().long_name}.{who}{note} Call move with one of your legal moves."


def checked_seat(text: str, game: Any, seat: int) -> int:
    """The seat, if the game has it.

    Args:
        text: The game's name, for the message.
        game: The game.
        seat: The seat.

    Raises:
        InvalidOption: The game has no such seat.
    """
    players = int(game.num_players())
    if not 0 <= seat < players:
        raise InvalidOption(f"openspiel:{text} has no seat {seat}; its seats are 0 to {players - 1}")
    return seat


def _quoted(moves: Iterable[str]) -> str:
    return ", ".join(json.dumps(move, ensure_ascii=False) for move in moves)


def _object(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": [*properties],
        "additionalProperties": False,
    }
