"""The operations that tasks are made of, each with its words. Their source is part of the reference solutions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["FINALS", "OPERATIONS", "WORDS", "ListOperation"]

WORDS = [
    "amber",
    "anchor",
    "apple",
    "autumn",
    "basket",
    "beacon",
    "bottle",
    "branch",
    "bridge",
    "button",
    "candle",
    "canyon",
    "carpet",
    "castle",
    "cherry",
    "circle",
    "cloud",
    "copper",
    "corner",
    "cotton",
    "desert",
    "dragon",
    "eagle",
    "ember",
    "engine",
    "fabric",
    "feather",
    "forest",
    "garden",
    "ginger",
    "glacier",
    "hammer",
    "harbor",
    "island",
    "jacket",
    "kettle",
    "ladder",
    "lantern",
    "lemon",
    "marble",
    "meadow",
    "mirror",
    "needle",
    "ocean",
    "olive",
    "orchard",
    "paper",
    "pebble",
    "pepper",
    "planet",
    "pocket",
    "puzzle",
    "quartz",
    "ribbon",
    "river",
    "saddle",
    "silver",
    "spider",
    "stone",
    "summer",
    "sunset",
    "table",
    "timber",
    "tunnel",
    "valley",
    "velvet",
    "walnut",
    "window",
    "winter",
    "zebra",
    "ant",
    "bee",
    "cow",
    "dog",
    "elk",
    "fox",
]
"""Words that inputs are drawn from."""


@dataclass(frozen=True, slots=True)
class ListOperation:
    """Something that is done with a list.

    Attributes:
        function: Does it.
        words: What a player is told; `{n}` stands for the parameter.
        choices: The values that the parameter may have; empty if there is none.
    """

    function: Callable[..., Any]
    words: str
    choices: Sequence[int | str] = ()


def keep_multiples(values: list[int], n: int) -> list[int]:
    return [value for value in values if value % n == 0]


def drop_multiples(values: list[int], n: int) -> list[int]:
    return [value for value in values if value % n != 0]


def keep_above(values: list[int], n: int) -> list[int]:
    return [value for value in values if value > n]


def add(values: list[int], n: int) -> list[int]:
    return [value + n for value in values]


def multiply(values: list[int], n: int) -> list[int]:
    return [value * n for value in values]


def running_sums(values: list[int]) -> list[int]:
    return [sum(values[: place + 1]) for place in range(len(values))]


def differences(values: list[int]) -> list[int]:
    return [values[place] - values[place - 1] for place in range(1, len(values))]


def sort_up(values: list[int]) -> list[int]:
    return sorted(values)


def sort_down(values: list[int]) -> list[int]:
    return sorted(values, reverse=True)


def digit_sums(values: list[int]) -> list[int]:
    return [sum(int(digit) for digit in str(abs(value))) for value in values]


def negate_even_places(values: list[int]) -> list[int]:
    return [-value if place % 2 == 0 else value for place, value in enumerate(values, 1)]


def window_largest(values: list[int], n: int) -> list[int]:
    return [max(values[place : place + n]) for place in range(len(values) - n + 1)]


def remainders(values: list[int], n: int) -> list[int]:
    return [value % n for value in values]


def clamp(values: list[int], n: int) -> list[int]:
    return [max(-n, min(n, value)) for value in values]


def merge_equal(values: list[int]) -> list[int]:
    return [value for place, value in enumerate(values) if place == 0 or value != values[place - 1]]


def reverse_list(values: list[Any]) -> list[Any]:
    return values[::-1]


def drop_repeats(values: list[Any]) -> list[Any]:
    return list(dict.fromkeys(values))


def every_nth(values: list[Any], n: int) -> list[Any]:
    return values[::n]


def rotate_left(values: list[Any], n: int) -> list[Any]:
    return values[n % len(values) :] + values[: n % len(values)] if values else []


def drop_first(values: list[Any], n: int) -> list[Any]:
    return values[n:]


def reverse_each(values: list[str]) -> list[str]:
    return [word[::-1] for word in values]


def keep_longer(values: list[str], n: int) -> list[str]:
    return [word for word in values if len(word) > n]


def remove_letter(values: list[str], n: str) -> list[str]:
    return [word.replace(n, "") for word in values]


def keep_with(values: list[str], n: str) -> list[str]:
    return [word for word in values if n in word]


def sort_words(values: list[str]) -> list[str]:
    return sorted(values)


def sort_by_length(values: list[str]) -> list[str]:
    return sorted(values, key=len)


def shift_letters(values: list[str], n: int) -> list[str]:
    alphabet = "abcdefghijklmnopqrstuvwxyz"
    return [word.translate(str.maketrans(alphabet, alphabet[n:] + alphabet[:n])) for word in values]


def append_length(values: list[str]) -> list[str]:
    return [f"{word}{len(word)}" for word in values]


def double_vowels(values: list[str]) -> list[str]:
    return ["".join(letter * 2 if letter in "aeiou" else letter for letter in word) for word in values]


def rotate_each(values: list[str], n: int) -> list[str]:
    return [word[n % len(word) :] + word[: n % len(word)] if word else "" for word in values]


def the_list(values: list[Any]) -> list[Any]:
    return values


def how_many(values: list[Any]) -> int:
    return len(values)


def total(values: list[int]) -> int:
    return sum(values)


def spread(values: list[int]) -> int:
    return max(values) - min(values) if values else 0


def most_common(values: list[int]) -> int | None:
    return min(values, key=lambda value: (-values.count(value), value)) if values else None


def alternating_sum(values: list[int]) -> int:
    return sum(values[::2]) - sum(values[1::2])


def hyphenated(values: list[str]) -> str:
    return "-".join(values)


def occurrences(values: list[str]) -> dict[str, int]:
    return {word: values.count(word) for word in values}


def longest(values: list[str]) -> str:
    return max(values, key=len, default="")


def initials(values: list[str]) -> str:
    return "".join(word[:1] for word in values)


_ANY = (
    ListOperation(reverse_list, "Reverse the order of the list."),
    ListOperation(drop_repeats, "Keep only the first occurrence of each item."),
    ListOperation(every_nth, "Keep the first item and then every {n}-th one after it.", range(2, 5)),
    ListOperation(rotate_left, "Move the first item to the end of the list, {n} times over.", range(2, 5)),
    ListOperation(drop_first, "Drop the first {n} items.", range(2, 4)),
)

OPERATIONS: dict[str, tuple[ListOperation, ...]] = {
    "numbers": (
        ListOperation(keep_multiples, "Keep only the numbers that are divisible by {n}.", range(2, 5)),
        ListOperation(drop_multiples, "Drop the numbers that are divisible by {n}.", range(2, 8)),
        ListOperation(keep_above, "Keep only the numbers that are greater than {n}.", range(-25, 20)),
        ListOperation(add, "Add {n} to each number.", (*range(-9, 0), *range(1, 10))),
        ListOperation(multiply, "Multiply each number by {n}.", (-3, -2, 2, 3, 4, 5)),
        ListOperation(running_sums, "Replace each number by the sum of all numbers up to and including it."),
        ListOperation(
            differences,
            "Replace the list by the differences of neighbours, each number minus the one before it: the list becomes "
            "one shorter, and one of fewer than two numbers becomes empty.",
        ),
        ListOperation(sort_up, "Sort the numbers in ascending order."),
        ListOperation(sort_down, "Sort the numbers in descending order."),
        ListOperation(digit_sums, "Replace each number by the sum of the decimal digits of its absolute value."),
        ListOperation(negate_even_places, "Change the sign of the second, the fourth, the sixth number, and so on."),
        ListOperation(
            window_largest,
            "Replace the list by the largest number of each {n} neighbours, from left to right: a list of fewer than "
            "{n} numbers becomes empty.",
            range(2, 4),
        ),
        ListOperation(
            remainders,
            "Replace each number by the remainder of its division by {n}, which is never negative.",
            range(3, 12),
        ),
        ListOperation(clamp, "Replace numbers above {n} by {n}, and numbers below -{n} by -{n}.", range(5, 40)),
        ListOperation(merge_equal, "Where neighbours are equal, keep only the first of them."),
        *_ANY,
    ),
    "words": (
        ListOperation(reverse_each, "Write each word backwards."),
        ListOperation(keep_longer, "Keep only the words that have more than {n} characters.", range(3, 7)),
        ListOperation(remove_letter, "Remove the letter {n} from each word, wherever it is.", "aeilnorst"),
        ListOperation(keep_with, "Keep only the words that contain the letter {n}.", "aeilnorst"),
        ListOperation(sort_words, "Sort the words alphabetically, by code points."),
        ListOperation(
            sort_by_length, "Sort the words by length, the shortest first; equally long ones keep their order."
        ),
        ListOperation(
            shift_letters,
            "Replace each lower-case letter by the one {n} places later in the alphabet, where a follows z.",
            range(1, 13),
        ),
        ListOperation(append_length, "Append to each word the number of its characters, as in fox3."),
        ListOperation(double_vowels, "Write each vowel (a, e, i, o, u) twice."),
        ListOperation(rotate_each, "Move the first character of each word to its end, {n} times over.", range(2, 4)),
        *_ANY,
    ),
}
"""What can be done with a list, by what is in it."""

_ANY_FINALS = (ListOperation(the_list, "the list"), ListOperation(how_many, "how many items the list has"))

FINALS: dict[str, tuple[ListOperation, ...]] = {
    "numbers": (
        *_ANY_FINALS,
        ListOperation(total, "the sum of the numbers, 0 if there are none"),
        ListOperation(spread, "the largest number minus the smallest, 0 if there are none"),
        ListOperation(
            most_common,
            "the number that occurs most often, the smallest of them if there are several, or None (null in JSON) if "
            "the list is empty",
        ),
        ListOperation(
            alternating_sum, "the first number minus the second plus the third and so on, 0 if there are none"
        ),
    ),
    "words": (
        *_ANY_FINALS,
        ListOperation(hyphenated, "the words joined by hyphens, as one text"),
        ListOperation(occurrences, "a dictionary from each word to how often it occurs"),
        ListOperation(
            longest, "the longest word, the first of them if there are several, or an empty text if there is none"
        ),
        ListOperation(initials, "the first characters of all words, joined to one text"),
    ),
}
"""What is made of the list in the end, by what is in it."""
