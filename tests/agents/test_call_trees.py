"""The tree of what was sampled for a session."""

from __future__ import annotations

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
