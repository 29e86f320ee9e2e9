"""The games for one player whose moves are tools."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice, pairwise, permutations, product
from random import Random
from typing import Any

from envport.types import LegalCall
from envport_envs.textarena.games import Game, Move, array, choice, integer, word

__all__ = ["PUZZLES"]

_SAMPLED = 64
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_DIRECTIONS = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
_TOWERS = ("A", "B", "C")


def _untold(game: Any) -> list[LegalCall]:
    """No list of legal moves: it would tell the solution, or the player's next moves would not all be legal."""
    return []


def _wordle() -> Game:
    def rules(game: Any) -> str:
        return (
            f"Play Wordle. A secret English word of {game.word_length} letters has been chosen, and you have "
            f"{game.num_guesses} guesses. The reply says of each letter: G (right letter, right place), Y (the letter "
            "is in the word, in another place) or X (the letter is not in the word, or not once more)."
        )

    def moves(game: Any) -> list[Move]:
        pattern = f"^[A-Za-z]{{{game.word_length}}}$"
        secret = word(pattern, f"An English word of {game.word_length} letters that was not guessed before.")
        return [Move("guess", "Guess the secret word.", "[{word}]", {"word": secret})]

    def legal(game: Any) -> list[LegalCall]:
        guessed = {it for it, _ in game.state.game_state["guess_history"]}
        # The same words at the same turn.
        words = Random(game.state.turn).sample(game.word_list, min(_SAMPLED, len(game.word_list)))
        return [("guess", {"word": it}) for it in words if it not in guessed]

    return Game(rules, moves, legal)


def _sudoku() -> Game:
    def rules(game: Any) -> str:
        return (
            "Solve the Sudoku: fill the empty cells (.) of the 9 by 9 board, so that every row (R1 to R9), every "
            "column (C1 to C9) and every block of 3 by 3 cells holds each number from 1 to 9 once. There is one "
            f"solution. A number that is not the solution's is an invalid move. You have {game.max_turns} moves."
        )

    def moves(game: Any) -> list[Move]:
        parameters = {
            "row": integer(1, 9, "Row of the cell, from 1 at the top."),
            "column": integer(1, 9, "Column of the cell, from 1 at the left."),
            "number": integer(1, 9, "The number."),
        }
        return [Move("place", "Write a number into an empty cell.", "[{row} {column} {number}]", parameters)]

    return Game(rules, moves, _untold)


def _game_2048() -> Game:
    def rules(game: Any) -> str:
        return (
            f"Play 2048 on a board of {game.board_size} by {game.board_size} cells: slide the tiles in one direction; "
            "two equal tiles that meet become one of twice the number, and a new tile appears. Reach a tile of "
            f"{game.target_tile}. A move that changes nothing is invalid."
        )

    def moves(game: Any) -> list[Move]:
        parameters = {"direction": choice([*_DIRECTIONS], "Where all tiles slide.")}
        return [Move("slide", "Slide all tiles in one direction.", "[{direction}]", parameters)]

    def legal(game: Any) -> list[LegalCall]:
        board: list[list[int]] = game.state.game_state["board"]
        columns = [list(column) for column in zip(*board, strict=True)]
        lines = {"left": board, "right": [row[::-1] for row in board]}
        lines |= {"up": columns, "down": [column[::-1] for column in columns]}
        return [("slide", {"direction": direction}) for direction in _DIRECTIONS if any(map(_slides, lines[direction]))]

    return Game(rules, moves, legal, max_steps=5_000)


def _slides(line: list[int]) -> bool:
    """Whether sliding a line towards its start changes it."""
    return any(after and (not before or before == after) for before, after in pairwise(line))


def _mastermind() -> Game:
    def rules(game: Any) -> str:
        repeats = "numbers may repeat" if game.duplicate_numbers else "no number repeats"
        return (
            f"Play Mastermind: find the secret code of {game.code_length} numbers, each from 1 to {game.num_numbers}; "
            f"{repeats}. After each guess you are told its black pegs (right number, right place) and white pegs "
            f"(right number, another place). You have {game.max_turns} guesses."
        )

    def moves(game: Any) -> list[Move]:
        number = {"type": "integer", "minimum": 1, "maximum": game.num_numbers}
        code = array(number, game.code_length, "The numbers of the code, in order.")
        return [Move("guess", "Guess the secret code.", "[{code}]", {"code": code})]

    def legal(game: Any) -> list[LegalCall]:
        numbers = Random(game.state.turn).sample(range(1, game.num_numbers + 1), game.num_numbers)
        guessed: list[list[int]] = [entry["guess"] for entry in game.state.game_state["history"]]
        length: int = game.code_length
        codes = (list(code) for code in permutations(numbers, length))
        return [("guess", {"code": code}) for code in islice((it for it in codes if it not in guessed), _SAMPLED)]

    return Game(rules, moves, legal)


def _minesweeper() -> Game:
    def rules(game: Any) -> str:
        return (
            f"Play Minesweeper on {game.rows} rows and {game.cols} columns with {game.num_mines} mines: reveal every "
            "cell that has no mine. A number says how many of the eight cells around it have mines. The mines are "
            "placed after your first move, away from it. A cell with a mine stays hidden and counts as an invalid "
            f"move. You have {game.max_turns} moves."
        )

    def moves(game: Any) -> list[Move]:
        parameters = {
            "row": integer(0, game.rows - 1, "Row of the cell, from 0 at the top."),
            "column": integer(0, game.cols - 1, "Column of the cell, from 0 at the left."),
        }
        return [Move("reveal", "Reveal a hidden cell.", "[{row} {column}]", parameters)]

    return Game(rules, moves, _untold)


def _hangman() -> Game:
    def rules(game: Any) -> str:
        return (
            "Play Hangman: find the secret English word. A letter that is in the word is shown wherever it is. Six "
            "letters that are not in the word end the game. A wrong word costs none of the six."
        )

    def moves(game: Any) -> list[Move]:
        letter = word("^[A-Za-z]$", "A letter that was not guessed before.")
        # TextArena takes a word of one letter for a letter.
        guessed = word("^[A-Za-z]{2,45}$", "The word.")
        return [
            Move("guess_letter", "Guess a letter of the word.", "[{letter}]", {"letter": letter}),
            Move("guess_word", "Guess the whole word.", "[{word}]", {"word": guessed}),
        ]

    def legal(game: Any) -> list[LegalCall]:
        guessed = game.state.game_state["guessed_letters"]
        return [("guess_letter", {"letter": letter}) for letter in _LETTERS if letter not in guessed]

    return Game(rules, moves, legal)


def _tower_of_hanoi() -> Game:
    def rules(game: Any) -> str:
        return (
            f"Solve the Tower of Hanoi: move all {game.num_disks} disks from tower A to tower C. Only the top disk of "
            "a tower moves, and never onto a smaller one. A tower is written from its bottom to its top. You have "
            f"{game.max_turns} moves."
        )

    def moves(game: Any) -> list[Move]:
        parameters = {
            "source": choice(_TOWERS, "The tower whose top disk moves."),
            "target": choice(_TOWERS, "The tower that gets it."),
        }
        return [Move("move", "Move a disk.", "[{source} {target}]", parameters)]

    def legal(game: Any) -> list[LegalCall]:
        towers: Mapping[str, list[int]] = game.state.game_state["towers"]
        return [
            ("move", {"source": source, "target": target})
            for source, target in permutations(_TOWERS, 2)
            if towers[source] and (not towers[target] or towers[target][-1] > towers[source][-1])
        ]

    return Game(rules, moves, legal)


def _lights_out() -> Game:
    def rules(game: Any) -> str:
        return (
            f"Play Lights Out on a board of {game.size} by {game.size} lights: turn all of them off. O is a light that "
            "is on, and . one that is off. Pressing a light switches it and those above, below, left and right of it. "
            f"You have {game.max_turns} moves."
        )

    def moves(game: Any) -> list[Move]:
        parameters = {
            "row": integer(0, game.size - 1, "Row of the light, from 0 at the top."),
            "column": integer(0, game.size - 1, "Column of the light, from 0 at the left."),
        }
        return [Move("press", "Press a light.", "[{row} {column}]", parameters)]

    def legal(game: Any) -> list[LegalCall]:
        return [
            ("press", {"row": row, "column": column}) for row, column in product(range(game.size), range(game.size))
        ]

    return Game(rules, moves, legal)


def _guess_the_number() -> Game:
    def rules(game: Any) -> str:
        return (
            f"Find the secret number from {game.min_number} to {game.max_number}. After each guess you are told "
            f"whether it is higher or lower. You have {game.max_turns} guesses."
        )

    def moves(game: Any) -> list[Move]:
        number = integer(game.min_number, game.max_number, "A number that was not guessed before.")
        return [Move("guess", "Guess the secret number.", "[{number}]", {"number": number})]

    def legal(game: Any) -> list[LegalCall]:
        numbers = range(game.min_number, game.max_number + 1)
        return [("guess", {"number": number}) for number in numbers if number not in game.guessed_numbers]

    return Game(rules, moves, legal)


def _frozen_lake() -> Game:
    def rules(game: Any) -> str:
        return (
            f"Cross a frozen lake of {game.size} by {game.size} cells: walk from P, where you are, to the goal G "
            "without falling into a hole H. The ice is not slippery. Walking into the edge is an invalid move."
        )

    def moves(game: Any) -> list[Move]:
        parameters = {"direction": choice([*_DIRECTIONS], "Where to walk.")}
        return [Move("walk", "Walk one cell.", "[{direction}]", parameters)]

    def legal(game: Any) -> list[LegalCall]:
        row, column = game.state.game_state["player_pos"]
        inside = range(game.size)
        return [
            ("walk", {"direction": name})
            for name, (down, right) in _DIRECTIONS.items()
            if row + down in inside and column + right in inside
        ]

    return Game(rules, moves, legal)


def _blackjack() -> Game:
    def rules(game: Any) -> str:
        return (
            f"Play {game.num_hands} hands of Blackjack against the dealer: get as close to 21 as you can without going "
            "over. J, Q and K count 10, an ace counts 11 or 1. The dealer draws up to 17."
        )

    def moves(game: Any) -> list[Move]:
        return [
            Move("hit", "Draw another card.", "[hit]"),
            Move("stand", "Keep your cards and end the hand.", "[stand]"),
        ]

    def legal(game: Any) -> list[LegalCall]:
        return [("hit", {}), ("stand", {})]

    return Game(rules, moves, legal)


PUZZLES: Mapping[str, Game] = {
    "Blackjack": _blackjack(),
    "FrozenLake": _frozen_lake(),
    "Game2048": _game_2048(),
    "GuessTheNumber": _guess_the_number(),
    "Hangman": _hangman(),
    "LightsOut": _lights_out(),
    "Mastermind": _mastermind(),
    "Minesweeper": _minesweeper(),
    "Sudoku": _sudoku(),
    "TowerOfHanoi": _tower_of_hanoi(),
    "Wordle": _wordle(),
}
"""By the name of TextArena's package of the game."""
