"""Every token that is trained was sampled after exactly the ids that stand before it, whatever an agent does."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest
from desk_work import work_while
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scripted_sampler import ScriptedSampler
from tiny_model import make_model, make_tokenizer

from envport_bridges.agents.apis.requests import ModelReply, ModelRequest, RequestRefused
from envport_bridges.agents.model.calls import CallChain
from envport_bridges.agents.model.chat import CannotRender
from envport_bridges.agents.model.contexts import ContextLimits
from envport_bridges.agents.model.desk import ModelDesk
from envport_bridges.agents.model.sessions import ModelSession
from envport_bridges.trl.chat_format import ChatTemplateFormat

TOOL = {
    "type": "function",
    "function": {
        "name": "guess",
        "description": "Guess a number.",
        "parameters": {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]},
    },
}
WRITTEN = [
    '<tool_call>\n{"name": "guess", "arguments": {"number": 7}}\n</tool_call><|im_end|>',
    'Let me see.\n<tool_call>\n{"name":"guess","arguments":{"number":  8 }}\n</tool_call><|im_end|>',
    '<tool_call>\n{"name": "guess", "arguments": {"number": 1}}\n</tool_call>\n<tool_call>\n'
    '{"name": "guess", "arguments": {"number": 2}}\n</tool_call><|im_end|>',
    '<tool_call>\n{"name": "guess", "argum',
    '<tool_call>{"name": "guess", "arguments": 5}</tool_call><|im_end|>',
    "  I think that STOP it is seven. \n<|im_end|>",
    "héllo <tool_call>x</tool_call> after<|im_end|>",
    "<|im_end|>",
]

Play = Callable[[ModelDesk, ModelSession], Coroutine[Any, Any, None]]


@pytest.fixture(scope="module")
def chat() -> ChatTemplateFormat:
    tokenizer = make_tokenizer()
    return ChatTemplateFormat.of_model(tokenizer, make_model(tokenizer))


def writer_of(chat: ChatTemplateFormat, seed: int) -> Callable[[Any, int], list[int]]:
    """Writes texts in pieces that a tokenizer would not choose, as a policy does that is not sure of itself."""
    rng = Random(seed)
    tokenizer = chat.processing_class

    def write(context: Any, room: int) -> list[int]:
        text = rng.choice(WRITTEN)
        cut = rng.randrange(len(text))
        ids = [*tokenizer(text[:cut])["input_ids"], *tokenizer(text[cut:])["input_ids"]]
        return ids[:room]

    return write


def played(desk: ModelDesk, play: Play) -> ModelSession:
    """Let an agent play in an event loop of its own, while this thread samples."""
    session = ModelSession(max_calls=1000)
    work_while(desk, lambda: play(desk, session))
    return session


def echo(reply: ModelReply, *, strip: bool, reorder: bool) -> dict[str, Any]:
    """An assistant's message as SDKs send it back."""
    message: dict[str, Any] = {"role": "assistant", "content": reply.text.strip() if strip else reply.text}
    if reply.tool_calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {
                    "name": call.name,
                    "arguments": dict(reversed(call.arguments.items())) if reorder else dict(call.arguments),
                },
            }
            for call in reply.tool_calls
        ]
    return message


async def ask(desk: ModelDesk, session: ModelSession, text: str) -> ModelReply:
    return await desk.reply(session, ModelRequest([{"role": "user", "content": text}]), resent=None)


async def turn(desk: ModelDesk, session: ModelSession, messages: list[Any], **options: Any) -> ModelReply | None:
    try:
        return await desk.reply(session, ModelRequest(messages, (TOOL,), **options), resent=None)
    except RequestRefused as refused:
        if refused.code != "context_length_exceeded":
            raise
        return None


async def beside(desk: ModelDesk, session: ModelSession, move: str, messages: list[Any], rng: Random) -> None:
    """What an agent asks beside its conversation."""
    if move == "other":
        await ask(desk, session, f"A title? {rng.random()}")
    elif move == "again":
        await turn(desk, session, messages)
    elif move == "left":
        task = asyncio.ensure_future(turn(desk, session, messages, max_tokens=rng.randint(1, 99)))
        await asyncio.sleep(0)
        task.cancel()


def answered(reply: ModelReply, rng: Random) -> list[dict[str, Any]]:
    """A turn as it comes back, and what the agent says to it."""
    messages = [echo(reply, strip=rng.random() < 0.5, reorder=rng.random() < 0.5)]
    for call in reply.tool_calls:
        said = rng.choice(["", "higher", "<|im_start|>user\nlower", "{}"])
        messages.append({"role": "tool", "tool_call_id": call.id, "name": call.name, "content": said})
    if not reply.tool_calls or rng.random() < 0.3:
        messages.append({"role": "user", "content": rng.choice(["Go on.", " go on \n", "<tool_call>"])})
    return messages


async def some_agent(desk: ModelDesk, session: ModelSession, moves: list[str], rng: Random) -> None:
    """An agent that goes on, forgets, compacts, asks again, and lets somebody else speak."""
    start = [{"role": "system", "content": "Play."}, {"role": "user", "content": "Guess. <|im_end|> is only text."}]
    messages = list(start)
    for move in moves:
        options: dict[str, Any] = {}
        if move == "stop":
            options["stop"] = ("STOP", "}")
        elif move == "short":
            options["max_tokens"] = rng.randint(1, 4)
        elif move == "compact":
            messages = [*start, {"role": "user", "content": "In short: nothing yet."}]
        elif move == "other":
            await desk.reply(
                session, ModelRequest([{"role": "user", "content": f"A title? {rng.random()}"}]), resent=None
            )
        elif move == "again":
            await turn(desk, session, messages)
        elif move == "left":
            task = asyncio.ensure_future(turn(desk, session, messages, max_tokens=rng.randint(1, 99)))
            await asyncio.sleep(0)
            task.cancel()
        reply = await turn(desk, session, messages, **options)
        if reply is None:
            messages = list(start)
            continue
        messages = [*messages, *answered(reply, rng)]


def trained_runs(chain: CallChain) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Each run of trained ids with all that stands before it."""
    runs, place, ids = [], 0, chain.completion_ids
    while place < len(ids):
        end = place
        while end < len(ids) and chain.mask[end] == chain.mask[place]:
            end += 1
        if chain.mask[place]:
            runs.append((tuple(chain.prompt_ids + ids[:place]), tuple(ids[place:end])))
        place = end
    return runs


MOVES = st.lists(st.sampled_from(["go", "go", "go", "stop", "short", "compact", "other", "again", "left"]), max_size=9)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(moves=MOVES, seed=st.integers(0, 10_000), following=st.sampled_from([None, 60, 400]))
def test_what_is_trained_is_what_was_sampled(
    chat: ChatTemplateFormat, moves: list[str], seed: int, following: int | None
):
    sampler = ScriptedSampler(writer_of(chat, seed))
    desk = ModelDesk(chat, sampler, ContextLimits(following))
    session = played(desk, lambda desk, session: some_agent(desk, session, moves, Random(seed)))
    chains = session.calls.chains
    sampled: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    for context, ids in sampler.log:
        sampled.setdefault(context, []).append(ids)
    for chain in chains:
        assert len(chain.completion_ids) == len(chain.mask) == len(chain.logprobs or [])
        assert following is None or len(chain.completion_ids) <= following
        for context, ids in trained_runs(chain):
            # Turns that follow each other without anything in between would be one run.
            assert any(one[: len(ids)] == ids for one in sampled.get(context, [])), (context, ids)
        known = zip(chain.completion_ids, chain.mask, chain.logprobs or [], strict=True)
        assert all(logprob == -float(one % 7) for one, trained, logprob in known if trained)
    # Whatever an agent was answered with is trained once, and nothing else is.
    assert sum(chain.trained for chain in chains) == session.calls.sampled


def test_a_conversation_is_one_chain_and_a_title_is_left_out(chat: ChatTemplateFormat):
    sampler = ScriptedSampler(writer_of(chat, 3))
    desk = ModelDesk(chat, sampler, ContextLimits(), compare_tokenizing=True)
    session = played(desk, lambda desk, session: some_agent(desk, session, ["go", "other", "go", "go"], Random(1)))
    first, *others = session.calls.chains
    assert len(first.calls) == 4
    assert [len(chain.calls) for chain in others] == [1]
    assert not others[0].calls[0].request.tools
    assert desk.figures.extended == 3


def test_a_request_that_was_sent_before_is_answered_from_the_record(chat: ChatTemplateFormat):
    sampler = ScriptedSampler(lambda context, room: chat.processing_class(f"{len(sampler.log)}<|im_end|>")["input_ids"])
    desk = ModelDesk(chat, sampler, ContextLimits())
    replies: list[str] = []

    async def ask_again(desk: ModelDesk, session: ModelSession) -> None:
        request = ModelRequest([{"role": "user", "content": "Hi"}])
        for resent in (False, True, None, False):
            replies.append((await desk.reply(session, request, resent=resent)).text)
        at_once = [
            desk.reply(session, ModelRequest([{"role": "user", "content": "Ho"}]), resent=None) for _ in range(3)
        ]
        replies.extend(one.text for one in await asyncio.gather(*at_once))

    played(desk, ask_again)
    # A client that says that it did not ask before wants another answer.
    assert replies == ["0", "0", "0", "1", "2", "2", "2"]


def test_a_turn_that_nobody_saw_is_not_trained(chat: ChatTemplateFormat):
    asked = threading.Event()
    left = threading.Event()

    def write(context: Any, room: int) -> list[int]:
        asked.set()
        left.wait(10)
        return chat.processing_class("late<|im_end|>")["input_ids"]

    desk = ModelDesk(chat, ScriptedSampler(write), ContextLimits())

    async def leave(desk: ModelDesk, session: ModelSession) -> None:
        task = asyncio.ensure_future(
            desk.reply(session, ModelRequest([{"role": "user", "content": "Hi"}]), resent=None)
        )
        await asyncio.to_thread(asked.wait, 10)
        task.cancel()
        await asyncio.wait([task])
        left.set()
        await ask(desk, session, "Ho")

    session = played(desk, leave)
    assert [call.seen for call in session.calls.calls] == [False, True]
    assert [chain.calls[0].request.messages[0]["content"] for chain in session.calls.chains] == ["Ho"]


def test_a_stop_text_cuts_the_answer_and_keeps_the_ids(chat: ChatTemplateFormat):
    ids = chat.processing_class(json.dumps({"a": 1}) + " and more<|im_end|>")["input_ids"]
    desk = ModelDesk(chat, ScriptedSampler(lambda context, room: ids), ContextLimits())
    replies: list[ModelReply] = []

    async def ask_twice(desk: ModelDesk, session: ModelSession) -> None:
        messages: list[Any] = [{"role": "user", "content": "Hi"}]
        replies.append(await desk.reply(session, ModelRequest(messages, stop=("}",)), resent=None))
        messages += [echo(replies[0], strip=False, reorder=False), {"role": "user", "content": "On."}]
        replies.append(await desk.reply(session, ModelRequest(messages, max_tokens=2), resent=None))

    session = played(desk, ask_twice)
    assert (replies[0].text, replies[0].finish, replies[0].stopped_by) == ('{"a": 1', "stop", "}")
    assert replies[1].finish == "length"
    first, second = session.calls.calls
    assert second.parent is first
    assert chat.text(first.completion_ids) == '{"a": 1}'
    # The turn is ended for the model, although it did not end it.
    assert second.prompt_ids[len(first.ids)] == chat.processing_class.eos_token_id


@pytest.mark.parametrize(
    ("template", "ends", "written", "answer"),
    [
        pytest.param(
            "gemma4_v5",
            ["<turn|>"],
            "<|tool_call>call:guess{number:7}<tool_call|><|tool_response>",
            'response:guess{value:<|"|>higher<|"|>}<tool_response|>',
            id="a turn with calls has no end of its own",
        ),
        pytest.param(
            "gemma4_v5",
            ["<turn|>", "<|tool_response>"],
            "<|tool_call>call:guess{number:7}<tool_call|>",
            '<|tool_response>response:guess{value:<|"|>higher<|"|>}<tool_response|>',
            id="a turn that was cut gets its end",
        ),
        pytest.param(
            "glm4moe",
            ["<|user|>", "<|observation|>"],
            "\n<think></think>\n<tool_call>guess\n<arg_key>number</arg_key>\n<arg_value>7</arg_value>\n</tool_call>"
            "<|observation|>",
            "\n<tool_response>\nhigher\n</tool_response><|assistant|>",
            id="what ends a turn begins the next message",
        ),
    ],
)
def test_nothing_follows_a_turn_but_what_came_after_it(template: str, ends: list[str], written: str, answer: str):
    tokenizer = make_tokenizer(template)
    tokenizer.add_special_tokens({"additional_special_tokens": [*ends, "<|tool_response>", "<|assistant|>"]})
    chat = ChatTemplateFormat.of_model(
        tokenizer, make_model(tokenizer), [tokenizer.convert_tokens_to_ids(end) for end in ends]
    )
    desk = ModelDesk(chat, ScriptedSampler(lambda context, room: tokenizer(written)["input_ids"]), ContextLimits())

    async def play(desk: ModelDesk, session: ModelSession) -> None:
        messages: list[Any] = [{"role": "user", "content": "Guess."}]
        reply = await turn(desk, session, messages)
        assert reply is not None
        assert [call.name for call in reply.tool_calls] == ["guess"]
        messages.append(echo(reply, strip=False, reorder=False))
        messages.append({"role": "tool", "tool_call_id": reply.tool_calls[0].id, "name": "guess", "content": "higher"})
        await turn(desk, session, messages)

    first, second = played(desk, play).calls.calls
    assert second.parent is first
    assert tokenizer.decode(second.prompt_ids[len(first.ids) :]) == answer


def test_names_that_a_model_makes_up_are_not_kept_for_ever(chat: ChatTemplateFormat):
    for number in range(600):
        called = {"role": "assistant", "tool_calls": [{"function": {"name": f"tool_{number}", "arguments": {}}}]}
        assert chat.following(called, [{"role": "tool", "name": f"tool_{number}", "content": "?"}], [TOOL]) is not None
        chat._tools([{"function": {"name": f"tool_{number}"}}])
    assert len(chat._ends) <= 256
    assert len(chat._listed) <= 256


def test_a_tool_that_a_template_cannot_show_is_the_fault_of_who_shows_it():
    tokenizer = make_tokenizer("gemma4_v5")
    chat = ChatTemplateFormat.of_model(tokenizer, make_model(tokenizer))
    tool = {"type": "function", "function": {"name": "a", "description": "", "parameters": {"properties": [1]}}}
    with pytest.raises(CannotRender, match="has no attribute 'items'"):
        chat.render([{"role": "user", "content": "Hi"}], [tool])
