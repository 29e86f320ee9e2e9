"""The games for two players whose moves are tools."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

from envport.types import LegalCall
from envport_envs.textarena.games import Game, Move, choice, integer

__all__ = ["CONTESTS"]

_CARDS = ("A", "2", "3", "4", "5", "6", "7", "8", "9", "10", "J", "Q", "K")


def _contest(
    rules: Callable[[Any], str], moves: Callable[[Any], Sequence[Move]], legal: Callable[[Any], list[LegalCall]]
) -> Game:
    return Game(rules, moves, legal, players=2)


def _connect_four() -> Game:
    def rules(game: Any) -> str:
        return (
            f"Play Connect Four on {game.num_rows} rows and {game.num_cols} columns: be the first to have four discs "
            "in a row, in a column or on a diagonal. Player 0 has X, player 1 has O."
        )

    def moves(game: Any) -> list[Move]:
        column = integer(0, game.num_cols - 1, "A column that is not full, from 0 at the left.")
        return [Move("drop", "Drop a disc into a column.", "[col {column}]", {"column": column})]

    def legal(game: Any) -> list[LegalCall]:
        top = game.state.game_state["board"][0]
        return [("drop", {"column": column}) for column, cell in enumerate(top) if cell == "."]

    return _contest(rules, moves, legal)


_CELL = integer(0, 8, "An empty cell: 0 to 2 are in the first row, 3 to 5 in the second, 6 to 8 in the third.")


def _empty_cells(game: Any) -> list[int]:
    board: list[list[str]] = game.state.game_state["board"]
    return [3 * row + column for row, column in product(range(3), range(3)) if board[row][column] == ""]


def _tic_tac_toe() -> Game:
    def rules(game: Any) -> str:
        return (
            "Play Tic-Tac-Toe: have three marks in a row, in a column or on a diagonal. Player 0 has O, player 1 has X."
        )

    def moves(game: Any) -> list[Move]:
        return [Move("place", "Put your mark into a cell.", "[{cell}]", {"cell": _CELL})]

    def legal(game: Any) -> list[LegalCall]:
        return [("place", {"cell": cell}) for cell in _empty_cells(game)]

    return _contest(rules, moves, legal)


def _wild_tic_tac_toe() -> Game:
    def rules(game: Any) -> str:
        return (
            "Play Wild Tic-Tac-Toe: each move puts an X or an O, as you like. Whoever completes three equal marks in a "
            "row, in a column or on a diagonal wins."
        )

    def moves(game: Any) -> list[Move]:
        parameters = {"mark": choice(("X", "O"), "The mark."), "cell": _CELL}
        return [Move("place", "Put a mark into a cell.", "[{mark} {cell}]", parameters)]

    def legal(game: Any) -> list[LegalCall]:
        return [("place", {"mark": mark, "cell": cell}) for cell in _empty_cells(game) for mark in ("X", "O")]

    return _contest(rules, moves, legal)


def _kuhn_poker() -> Game:
    def rules(game: Any) -> str:
        return (
            f"Play {game.max_rounds} rounds of Kuhn Poker. The cards are J, Q and K; the highest wins. In each round, "
            "both players put 1 chip in and get a card. Check or bet 1 chip; who faces a bet calls or folds. Who has "
            "more chips in the end wins."
        )

    def moves(game: Any) -> list[Move]:
        return [
            Move("check", "Pass without a bet; only if nobody has bet.", "[check]"),
            Move("bet", "Bet 1 chip; only if nobody has bet.", "[bet]"),
            Move("call", "Match the other player's bet.", "[call]"),
            Move("fold", "Give up the round after the other player's bet.", "[fold]"),
        ]

    def legal(game: Any) -> list[LegalCall]:
        return [(name, {}) for name in game.state.game_state["current_legal_action_tree"]]

    return _contest(rules, moves, legal)


def _nim() -> Game:
    def rules(game: Any) -> str:
        return "Play Nim: take at least one object from exactly one pile. Who takes the last object wins."

    def moves(game: Any) -> list[Move]:
        piles: list[int] = game.initial_piles
        parameters = {
            "pile": integer(0, len(piles) - 1, "Number of the pile, from 0."),
            "count": integer(1, max(piles), "How many objects to take; no more than the pile has."),
        }
        return [Move("take", "Take objects from a pile.", "[{pile} {count}]", parameters)]

    def legal(game: Any) -> list[LegalCall]:
        piles: list[int] = game.state.game_state["piles"]
        return [
            ("take", {"pile": pile, "count": count}) for pile, size in enumerate(piles) for count in range(1, size + 1)
        ]

    return _contest(rules, moves, legal)


def _othello() -> Game:
    def rules(game: Any) -> str:
        return (
            f"Play Othello on a board of {game.N} by {game.N} cells: place a piece so that pieces of the other player "
            "are between it and another of yours, in any direction; they become yours. Who has more pieces in the end "
            "wins. Player 0 is Black (B) and begins, player 1 is White (W)."
        )

    def moves(game: Any) -> list[Move]:
        parameters = {
            "row": integer(0, game.N - 1, "Row of the cell, from 0 at the top."),
            "column": integer(0, game.N - 1, "Column of the cell, from 0 at the left."),
        }
        return [
            Move("place", "Place a piece.", "[{row}, {column}]", parameters),
            Move("skip", "Skip your turn; only if you can place no piece.", "[skip]"),
        ]

    def legal(game: Any) -> list[LegalCall]:
        valid: list[list[int]] = game._valid_moves("BW"[game.state.current_player_id])
        return [("place", {"row": row, "column": column}) for row, column in valid] or [("skip", {})]

    return _contest(rules, moves, legal)


def _rock_paper_scissors() -> Game:
    hands = ("rock", "paper", "scissors")

    def rules(game: Any) -> str:
        return f"Play {game.num_rounds} rounds of Rock-Paper-Scissors, and win more rounds than the other player."

    def moves(game: Any) -> list[Move]:
        return [Move("show", "Show a hand.", "[{hand}]", {"hand": choice(hands, "The hand.")})]

    def legal(game: Any) -> list[LegalCall]:
        return [("show", {"hand": hand}) for hand in hands]

    return _contest(rules, moves, legal)


def _matching_pennies() -> Game:
    sides = ("heads", "tails")

    def rules(game: Any) -> str:
        return (
            f"Play {game.num_rounds} rounds of Matching Pennies, and win more rounds than the other player. Player 0 "
            "wins a round if both choose the same side, player 1 if they do not."
        )

    def moves(game: Any) -> list[Move]:
        return [Move("choose", "Choose a side.", "[{side}]", {"side": choice(sides, "The side.")})]

    def legal(game: Any) -> list[LegalCall]:
        return [("choose", {"side": side}) for side in sides]

    return _contest(rules, moves, legal)


def _pig_dice() -> Game:
    def rules(game: Any) -> str:
        return (
            f"Play Pig: be the first to have {game.winning_score} points. In your turn, roll the die as often as you "
            "like; what you roll adds up, but a 1 loses all of this turn and ends it. Hold to keep your points and end "
            f"your turn. After {game.max_turns} turns, the higher score wins."
        )

    def moves(game: Any) -> list[Move]:
        return [Move("roll", "Roll the die.", "[roll]"), Move("hold", "Keep this turn's points and end it.", "[hold]")]

    def legal(game: Any) -> list[LegalCall]:
        return [("roll", {}), ("hold", {})]

    return _contest(rules, moves, legal)


def _pure_strategy() -> Game:
    def rules(game: Any) -> str:
        return (
            "Play the Game of Pure Strategy. Both players hold the 13 cards A (1) to K (13). In each of 13 rounds, a "
            "prize card is revealed and both play one card; the higher card wins the prize. After a tie, the prize is "
            "added to that of the next round. The higher total wins."
        )

    def moves(game: Any) -> list[Move]:
        return [Move("play", "Play a card.", "[{card}]", {"card": choice(_CARDS, "A card that you still hold.")})]

    def legal(game: Any) -> list[LegalCall]:
        hand: list[int] = game.state.game_state["player_hands"][game.state.current_player_id]
        return [("play", {"card": _CARDS[value - 1]}) for value in hand]

    return _contest(rules, moves, legal)


CONTESTS: Mapping[str, Game] = {
    "ConnectFour": _connect_four(),
    "GameOfPureStrategy": _pure_strategy(),
    "IteratedMatchingPennies": _matching_pennies(),
    "IteratedRockPaperScissors": _rock_paper_scissors(),
    "KuhnPoker": _kuhn_poker(),
    "Nim": _nim(),
    "Othello": _othello(),
    "PigDice": _pig_dice(),
    "TicTacToe": _tic_tac_toe(),
    "WildTicTacToe": _wild_tic_tac_toe(),
}
"""By the name of TextArena's package of the game."""
