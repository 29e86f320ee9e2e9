"""Messages arrive whole, however they are cut up on the way, and what is none is refused."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envport.runtimes.frames import MAX_FRAME, FrameError, Frames, encode

VALUES: st.SearchStrategy[Any] = st.recursive(
    # Lone surrogates too: tool arguments may hold them.
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
MESSAGES = st.lists(st.dictionaries(st.text(max_size=5), VALUES, max_size=3), max_size=4)


@given(messages=MESSAGES, data=st.data())
def test_messages_arrive_whole(messages: list[dict[str, Any]], data: st.DataObject):
    stream = b"".join(map(encode, messages))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    frames = Frames()
    arrived: list[dict[str, Any]] = []
    for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        arrived.extend(frames.feed(stream[begin:end]))
    assert arrived == messages


def test_deep_nesting_arrives_as_far_as_it_can_be_read():
    value: list[Any] = []
    for _ in range(400):
        value = [value]
    assert Frames().feed(encode({"value": value})) == [{"value": value}]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"3", b"\xff", b'{"a":1}{', b"[" * 100_000])
def test_what_is_no_message_is_refused(body: bytes):
    with pytest.raises(FrameError):
        Frames().feed(len(body).to_bytes(4, "big") + body)


def test_what_is_too_large_is_refused_before_it_has_arrived():
    with pytest.raises(FrameError, match="limit"):
        Frames().feed((MAX_FRAME + 1).to_bytes(4, "big"))
    with pytest.raises(FrameError, match="limit"):
        encode({"text": "x" * MAX_FRAME})


def test_what_is_not_plain_data_is_not_sent():
    with pytest.raises(TypeError):
        encode({"value": object()})
