"""Which tasks of reasoning-gym 0.1.25 are served, and why others are not.

`tests/envs/test_reasoning_gym_sweep.py` finds these lists again, by playing every task.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["SOUND", "UNSOUND", "UNSOUND_PARTS"]

_EXECUTES = "its scorer executes the answer as Python"
_NO_SOLUTION = "it has no known answer, so that nobody can check that its scorer pays for one"
_VARIES = "the same seed gives other questions in another process"

UNSOUND: Mapping[str, str] = {
    "binary_matrix": _EXECUTES,
    "boxnet": _NO_SOLUTION,
    "codeio": _VARIES,
    "coin_flip": "its scorer gives the full score for 0 where the answer is a small probability",
    "complex_arithmetic": "its scorer gives the full score for nan",
    "composite": "it is a mixture; write several tasks with commas",
    "countdown": _EXECUTES,
    "game_of_life_halting": "its scorer gives the full score for any text that is not the wrong one of two",
    "graph_color": _NO_SOLUTION,
    "intermediate_integration": _EXECUTES,
    "isomorphic_strings": _VARIES,
    "knight_swap": _VARIES,
    "list_functions": _VARIES,
    "n_queens": _EXECUTES,
    "polynomial_multiplication": _EXECUTES,
    "propositional_logic": _NO_SOLUTION,
    "puzzle24": _EXECUTES,
    "ransom_note": _VARIES,
    "rubiks_cube": _NO_SOLUTION,
    "rush_hour": _NO_SOLUTION,
    "simple_integration": _EXECUTES,
    "spiral_matrix": _EXECUTES,
    "string_insertion": _EXECUTES,
    "word_ladder": _VARIES,
}

_PAYS = "one wrong answer to all questions earns a quarter of the score or more"

UNSOUND_PARTS: Mapping[str, str] = dict.fromkeys(
    ("game_of_life", "gcd", "letter_counting", "mini_sudoku", "rectangle_count", "time_intervals"), _PAYS
)
"""Tasks whose partial scores are not served."""

SOUND = frozenset(
    [
        "ab",
        "acre",
        "advanced_geometry",
        "aiw",
        "arc_1d",
        "arc_agi",
        "base_conversion",
        "basic_arithmetic",
        "bf",
        "binary_alternation",
        "bitwise_arithmetic",
        "caesar_cipher",
        "calendar_arithmetic",
        "chain_sum",
        "circuit_logic",
        "color_cube_rotation",
        "count_bits",
        "count_primes",
        "course_schedule",
        "cryptarithm",
        "decimal_arithmetic",
        "decimal_chain_sum",
        "dice",
        "emoji_mystery",
        "family_relationships",
        "figlet_font",
        "fraction_simplification",
        "futoshiki",
        "game_of_life",
        "gcd",
        "group_anagrams",
        "gsm_symbolic",
        "jugs",
        "kakurasu",
        "knights_knaves",
        "largest_island",
        "lcm",
        "leg_counting",
        "letter_counting",
        "letter_jumble",
        "mahjong_puzzle",
        "manipulate_matrix",
        "maze",
        "mini_sudoku",
        "modulo_grid",
        "needle_haystack",
        "number_filtering",
        "number_format",
        "number_sequence",
        "number_sorting",
        "palindrome_generation",
        "palindrome_partitioning",
        "path_star",
        "polynomial_equations",
        "pool_matrix",
        "power_function",
        "prime_factorization",
        "products",
        "quantum_lock",
        "rearc",
        "rectangle_count",
        "rotate_matrix",
        "rotten_oranges",
        "self_reference",
        "sentence_reordering",
        "shortest_path",
        "simple_equations",
        "simple_geometry",
        "sokoban",
        "spell_backward",
        "string_manipulation",
        "string_splitting",
        "string_synthesis",
        "sudoku",
        "survo",
        "syllogism",
        "time_intervals",
        "tower_of_hanoi",
        "tsumego",
        "word_sequence_reversal",
        "word_sorting",
        "zebra_puzzles",
    ]
)
