"""The tree of what was sampled for a session."""

from __future__ import annotations

from typing import Any

import pytest

from envport_bridges.agents.apis.requests import ModelReply, ModelRequest, TokenUsage
from envport_bridges.agents.model.calls import CallTree, Conversation, ModelCall


def test_a_conversation_may_be_very_long():
    tree = CallTree()
    for number in range(3000):
        parent = tree.calls[-1] if tree.calls else None
        before = parent.ids if parent is not None else [7]
        request = ModelRequest([{"role": "user", "content": str(number)}])
        reply = ModelReply("", "stop", TokenUsage(len(before), 1))
        tree.add(ModelCall(Conversation.of(request), request, {}, reply, before, [number], parent=parent))
    (chain,) = tree.chains
    assert chain.completion_ids == list(range(3000))
    assert chain.trained == 3000
    assert tree.calls[-1].context_start == 1


@pytest.mark.parametrize(
    ("written", "sent_back", "same"),
    [
        ({"x": 1.0, "y": [-2.0, 1e3]}, {"x": 1, "y": [-2, 1000]}, True),
        ({"x": 2**53 + 1}, {"x": 2**53}, True),
        ({"x": float("inf"), "y": float("nan")}, {"x": None, "y": None}, True),
        ({"x": 1.5}, {"x": 1}, False),
        ({"x": True}, {"x": 1}, False),
        ({"x": "1.0"}, {"x": "1"}, False),
    ],
)
def test_numbers_may_come_back_as_javascript_writes_them(written: Any, sent_back: Any, same: bool):
    def said(arguments: Any) -> Conversation:
        call = {"function": {"name": "act", "arguments": arguments}}
        return Conversation.of(ModelRequest([{"role": "assistant", "content": "", "tool_calls": [call]}]))

    assert said(written).begins(said(sent_back)) is same
