"""Handles and seeds: random bytes that are read many at a time, and given out once."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection

from hypothesis import given
from hypothesis import strategies as st

from envport.entropy import random_bits, random_token


@given(st.integers(1, 64))
def test_numbers_have_their_bits_and_no_more(number: int):
    drawn = [random_bits(number) for _ in range(64)]
    assert all(0 <= value < 2**number for value in drawn)
    # Each bit is set in one of them and not in another, but once in 2**63 times.
    assert all(any(value >> bit & 1 for value in drawn) for bit in range(number))
    assert not all(value & 1 for value in drawn)


def test_a_token_is_a_text_for_urls():
    tokens = [random_token(24) for _ in range(2_000)]
    assert {len(token) for token in tokens} == {32}
    assert set("".join(tokens)) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
    assert len(set(tokens)) == len(tokens)


def test_threads_get_different_bytes():
    with ThreadPoolExecutor(8) as threads:
        drawn = list(threads.map(lambda _: [random_token(16) for _ in range(2_000)], range(8)))
    tokens = [token for share in drawn for token in share]
    assert len(set(tokens)) == len(tokens)


def test_a_forked_process_gets_different_bytes():
    random_token(16)  # Now there are bytes that both processes have.
    told, tells = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=_tell, args=(tells, random_token))
    child.start()
    theirs = told.recv()
    child.join()
    assert theirs != random_token(16)


def _tell(tells: Connection, draw: Callable[[int], str]) -> None:
    tells.send(draw(16))
