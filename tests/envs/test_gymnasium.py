"""Environments of Gymnasium by `gymnasium:ID`: their actions, observations, rewards and ends are the engine's."""

from __future__ import annotations

import base64
import io
import os
import re
import subprocess
import sys
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import anyio
import pytest
from opening import open_episode
from slow import slow

from envport.checker import check_environment
from envport.episodes import Episode, Episodes
from envport.errors import (
    ConfigurationError,
    EnvironmentNotFound,
    InvalidArguments,
    InvalidOption,
    MissingExtra,
)
from envport.registry import EnvironmentDefinition, load

gym: Any = pytest.importorskip("gymnasium", reason="the extra gymnasium is not installed")
SPACES = "gymnasium:gymnasium_environments:Spaces-v0"

EQUAL = [
    "FrozenLake-v1",
    "Taxi-v4",
    "CliffWalking-v1",
    "Blackjack-v1",
    "CartPole-v1",
    "MountainCar-v0",
    "Acrobot-v1",
    "Pendulum-v1",
    "MountainCarContinuous-v0",
    "MiniGrid-DoorKey-6x6-v0",
    "BabyAI-GoToRedBall-v0",
]


@asynccontextmanager
async def table(given: str | EnvironmentDefinition, **settings: Any) -> AsyncIterator[Episodes]:
    episodes = Episodes({"it": load(given, "it") if isinstance(given, str) else given}, **settings)
    async with episodes.run():
        yield episodes


async def opened(episodes: Episodes, seed: int = 0) -> Episode:
    return await open_episode(episodes, "it", seed=seed)


async def act(episode: Episode, *actions: str) -> Any:
    result: Any = None
    for action in actions:
        result = await episode.call("act", {"action": action})
    return result


def image(block: dict[str, Any]) -> Any:
    pillow: Any = pytest.importorskip("PIL.Image")
    return pillow.open(io.BytesIO(base64.b64decode(block["data"])))


CHECKED = ["FrozenLake-v1", "CartPole-v1", "Pendulum-v1", "MiniGrid-DoorKey-6x6-v0"]


@pytest.mark.parametrize(
    "name",
    [*CHECKED, "MiniGrid-Empty-5x5-v0?render=both", *slow(it for it in EQUAL if it not in CHECKED)],
)
def test_it_passes_the_checker_without_a_warning(name: str) -> None:
    report = check_environment(f"gymnasium:{name}", seeds=range(2), steps=12, another_process=False)
    assert [finding for finding in report.findings if finding.check != "runtime"] == []


@pytest.mark.parametrize("name", EQUAL)
async def test_rewards_and_ends_are_those_of_the_engine(name: str) -> None:
    async with table(f"gymnasium:{name}") as episodes:
        for seed in (1, 2):
            raw = gym.make(name)
            raw.reset(seed=seed)
            raw.action_space.seed(seed)
            tool = episodes.environment("it").tools["act"].input_schema["properties"]
            ((argument, schema),) = tool.items()
            episode = await opened(episodes, seed)
            for _ in range(40):
                action = raw.action_space.sample()
                value = schema["enum"][int(action)] if "enum" in schema else float(action[0])
                result = await episode.call("act", {argument: value})
                _, reward, terminated, truncated, _ = raw.step(action)
                assert (result.reward, result.terminated, result.truncated) == (float(reward), terminated, truncated)
                if not episode.live:
                    break


async def test_a_frozen_lake_that_is_not_slippery_is_crossed() -> None:
    async with table('gymnasium:FrozenLake-v1?arguments={"is_slippery":false}') as episodes:
        episode = await opened(episodes)
        assert episode.first_observation.text == (
            "You are in row 0, column 0; both count from 0.\n\n[S]FFF\nFHFH\nFFFH\nHFFG"
        )
        result = await act(episode, "down", "down", "right", "right", "down")
        assert result.observation.text == "You are in row 3, column 2; both count from 0.\n\nSFFF\nFHFH\nFFFH\nHF[F]G"
        await act(episode, "right")
        assert (episode.status, episode.reward) == ("terminated", 1.0)
        assert "over a frozen lake" in episode.prompt.replace("the frozen", "a frozen")


async def test_a_policy_that_reads_takes_the_taxi_to_its_destination() -> None:
    async with table("gymnasium:Taxi-v4") as episodes:
        for seed in range(5):
            episode = await opened(episodes, seed)
            path = shortest_ride(episode.first_observation.text)
            await act(episode, *path)
            assert (episode.status, episode.reward) == ("terminated", 20.0 - (len(path) - 1))


def shortest_ride(text: str) -> list[str]:
    """The actions that a reader of the first observation would plan, by the engine's table of transitions."""
    engine = gym.make("Taxi-v4").unwrapped
    found = re.search(r"row (\d), column (\d).*(?:at (\w)|in the taxi).*go to (\w)\.", text)
    assert found is not None
    row, column, passenger, destination = found.groups()
    start = engine.encode(int(row), int(column), "RGYB".index(passenger), "RGYB".index(destination))
    names = ("south", "north", "east", "west", "pickup", "dropoff")
    paths: deque[tuple[int, list[str]]] = deque([(start, [])])
    known = {start}
    while paths:
        state, path = paths.popleft()
        for number, name in enumerate(names):
            ((_, after, _, done),) = engine.P[state][number]
            if done:
                return [*path, name]
            if after not in known:
                known.add(after)
                paths.append((after, [*path, name]))
    raise AssertionError(text)


async def test_blackjack_by_its_cards() -> None:
    async with table("gymnasium:Blackjack-v1") as episodes:
        episode = await opened(episodes, 3)
        assert episode.first_observation.text == "Your hand counts 7. The dealer shows 10."
        result = await act(episode, "hit")
        assert (result.observation.text, result.reward) == ("Your hand counts 17. The dealer shows 10.", 0.0)
        aces = [(await opened(episodes, seed)).first_observation.text for seed in range(40)]
        assert any("with a usable ace" in text for text in aces)
        assert any("The dealer shows an ace." in text for text in aces)


async def test_the_view_of_minigrid_is_told_in_words() -> None:
    async with table("gymnasium:MiniGrid-DoorKey-6x6-v0") as episodes:
        episode = await opened(episodes, 3)
        text = (await act(episode, "left")).observation.text
        assert text.startswith("Mission: use the key to open the door and then get to the goal\nYou face east, which")
        assert text.endswith(
            "\n# D # # # # ?\n# . . . . # ?\n# . K ^ . # ?\n"
            "You see: a locked yellow door 2 ahead and 2 to the left; a yellow key 1 to the left.\nYou carry: nothing."
        )
        # It turns to the key, takes it, and sees that it carries it.
        text = (await act(episode, "left", "pickup")).observation.text
        assert text.endswith("You carry: a yellow key.")


async def test_numbers_have_the_names_of_the_documentation() -> None:
    async with table("gymnasium:CartPole-v1") as episodes:
        first = (await opened(episodes, 3)).first_observation
        assert first.structured_content == {
            "cart position": -0.04143508,
            "cart velocity": -0.026318949,
            "pole angle": 0.030127447,
            "pole angular velocity": 0.008216203,
        }
    pendulum = load("gymnasium:Pendulum-v1").tools["act"].input_schema["properties"]
    assert pendulum == {"torque": {"type": "number", "minimum": -2.0, "maximum": 2.0}}


@pytest.mark.parametrize(
    ("render", "kinds"), [("text", ["text"]), ("rgb_array", ["image"]), ("both", ["text", "image"])]
)
async def test_the_player_sees_what_was_chosen(render: str, kinds: list[str]) -> None:
    async with table(f"gymnasium:FrozenLake-v1?render={render}") as episodes:
        blocks = (await opened(episodes)).first_observation.content
        assert [block["type"] for block in blocks] == kinds
        if "image" in kinds:
            assert image(blocks[-1]).size == (256, 256)


async def test_a_picture_among_other_data_is_shown_as_one() -> None:
    async with table("gymnasium:gymnasium_environments:Screen-v0") as episodes:
        data, screen = (await opened(episodes)).first_observation.content
        assert data["text"] == '{"left": [[1, 1, 1], [1, 1, 1]]}'
        assert image(screen).size == (30, 20)


def test_an_episode_that_is_closed_leaves_the_pictures_of_the_others_alone() -> None:
    pygame: Any = pytest.importorskip("pygame")
    for name in ("Blackjack-v1", "FrozenLake-v1", "CartPole-v1"):
        definition = load(f"gymnasium:{name}?render=rgb_array")
        one, other = (cast("Any", definition.make()) for _ in range(2))
        for environment in (one, other):
            environment.reset(seed=0, task=None)
        one.close()
        # Gymnasium would have shut it down for the whole process.
        assert pygame.display.get_init()
        assert other.act(*other.legal_calls()[0]).observation.size[0] > 100


async def test_the_calls_that_make_sense_are_those_of_the_action_mask() -> None:
    async with table("gymnasium:Taxi-v4") as episodes:
        episode = await opened(episodes, 3)
        raw = gym.make("Taxi-v4")
        _, info = raw.reset(seed=3)
        names = ("south", "north", "east", "west", "pickup", "dropoff")
        wanted = [("act", {"action": name}) for name, legal in zip(names, info["action_mask"], strict=True) if legal]
        assert await episode.legal_calls() == wanted
        assert 0 < len(wanted) < 6


@pytest.mark.parametrize(
    "arguments",
    [
        {"action": "jump"},
        {"action": 0},
        {"action": None},
        {"action": True},
        {"action": ["left"]},
        {"action": 10**400},
        {"action": "left", "then": "right"},
        {},
    ],
)
async def test_what_is_no_action_is_refused_with_what_is_allowed(arguments: dict[str, Any]) -> None:
    async with table("gymnasium:FrozenLake-v1") as episodes:
        one, other = await opened(episodes, 5), await opened(episodes, 5)
        for _ in range(3):
            with pytest.raises(InvalidArguments, match=r'"left", "down", "right", "up"|arguments are: .?action'):
                await one.call("act", arguments)
        # Nothing of it has reached the engine.
        for action in ("right", "down", "right"):
            if one.live:
                assert (await act(one, action)).observation == (await act(other, action)).observation


@pytest.mark.parametrize(
    ("reference", "steps"),
    [
        ("gymnasium:FrozenLake-v1", 100),
        ("gymnasium:FrozenLake8x8-v1", 200),
        ("gymnasium:MiniGrid-Empty-5x5-v0", 100),
        ("gymnasium:CliffWalking-v1", 200),
        ("gymnasium:Blackjack-v1", 200),
        ("gymnasium:CliffWalking-v1?max_steps=3", 3),
        ("gymnasium:FrozenLake-v1?max_steps=500", 500),
        ('gymnasium:MiniGrid-Empty-5x5-v0?arguments={"max_steps":7}', 7),
    ],
)
def test_every_environment_has_a_limit_of_steps(reference: str, steps: int) -> None:
    assert load(reference).prototype.max_steps == steps


@pytest.mark.parametrize(
    "reference", ["gymnasium:CliffWalking-v1?max_steps=3", 'gymnasium:MiniGrid-Empty-5x5-v0?arguments={"max_steps":3}']
)
async def test_the_limit_truncates(reference: str) -> None:
    async with table(reference) as episodes:
        episode = await opened(episodes)
        result = await act(episode, "right", "left", "right")
        assert (result.terminated, result.truncated, episode.status) == (False, True, "truncated")


async def test_the_same_seed_is_the_same_episode_also_side_by_side() -> None:
    async def play(episodes: Episodes, seed: int, log: list[str]) -> None:
        episode = await opened(episodes, seed)
        log.append(episode.first_observation.text)
        for action in ["right", "down", "up", "left"] * 3:
            if episode.live:
                log.append((await act(episode, action)).observation.text)

    async with table("gymnasium:FrozenLake-v1") as episodes:
        alone: list[list[str]] = [[] for _ in range(6)]
        together: list[list[str]] = [[] for _ in range(6)]
        for number, seed in enumerate((0, 1, 2, 2**31, 2**63 - 1, 2)):
            await play(episodes, seed, alone[number])
        async with anyio.create_task_group() as tasks:
            for number, seed in enumerate((0, 1, 2, 2**31, 2**63 - 1, 2)):
                tasks.start_soon(play, episodes, seed, together[number])
        assert together == alone
        assert alone[2] == alone[5]
        assert len({tuple(log) for log in alone}) >= 3


async def test_it_is_played_in_a_process_of_its_own() -> None:
    reference = 'gymnasium:FrozenLake-v1?arguments={"is_slippery":false}&max_steps=50'
    async with table(reference, runtime="process") as episodes:
        episode = await opened(episodes)
        await act(episode, "down", "down", "right", "right", "down", "right")
        assert episode.reward == 1.0


@pytest.mark.parametrize(
    ("reference", "error", "complaint"),
    [
        (
            "gymnasium:FrozenLak-v1",
            EnvironmentNotFound,
            "`FrozenLak` doesn't exist.*near: FrozenLake-v1",
        ),
        ("gymnasium:FrozenLake", EnvironmentNotFound, "No registered env with id: FrozenLake .*near: FrozenLake-v1"),
        ("gymnasium:Taxi-v3", EnvironmentNotFound, "deprecated. Please use `Taxi-v4`"),
        ("gymnasium:MiniGrid-Empt-5x5-v0", EnvironmentNotFound, "near: MiniGrid-Empty-5x5-v0"),
        ('gymnasium:"a b"', EnvironmentNotFound, "Malformed environment ID: a b"),
        ("gymnasium:math:Thing-v0", EnvironmentNotFound, "Environment `Thing` doesn't exist"),
        ("gymnasium:no_such_module:Thing-v0", EnvironmentNotFound, "module 'no_such_module' cannot be imported"),
        ("gymnasium:.relative:Thing-v0", EnvironmentNotFound, "module '.relative' cannot be imported"),
        ("gymnasium:GymV21Environment-v0", ConfigurationError, "cannot be made: ImportError: .*pip install"),
        ("gymnasium:phys2d/CartPole-v1", ConfigurationError, "cannot be imported: No module named 'jax'"),
        ("gymnasium:FrozenLake-v1?render=ansi", InvalidOption, '"text", "rgb_array", "both"'),
        (
            "gymnasium:FrozenLake-v1?max_steps=0",
            InvalidOption,
            "'max_steps' is '0'; .* an integer at least 1",
        ),
        ("gymnasium:FrozenLake-v1?is_slippery=false", InvalidOption, "no option 'is_slippery'; .*: arguments"),
        ("gymnasium:FrozenLake-v1?arguments=[1]", InvalidOption, "'arguments' is .*it has to be an object"),
        (
            'gymnasium:FrozenLake-v1?arguments={"slippery":1}',
            InvalidOption,
            "no argument 'slippery'; its arguments are: desc, map_name, is_slippery",
        ),
        ('gymnasium:FrozenLake-v1?arguments={"is_slippery":"no"}', InvalidOption, "'is_slippery' is 'no'; .* be bool"),
        ('gymnasium:Blackjack-v1?arguments={"natural":"no"}', InvalidOption, "'natural' is 'no'; .* be bool"),
        ('gymnasium:FrozenLake-v1?arguments={"map_name":"9x9"}', InvalidOption, "refuses the arguments .*KeyError"),
        (
            'gymnasium:MiniGrid-Empty-5x5-v0?arguments={"x":1}',
            InvalidOption,
            "refuses .* unexpected keyword",
        ),
        ('gymnasium:FrozenLake-v1?arguments={"render_mode":"human"}', InvalidOption, "use the option render"),
        ('gymnasium:FrozenLake-v1?arguments={"max_episode_steps":5}', InvalidOption, "use the option max_steps"),
        (f"{SPACES}?render=rgb_array", InvalidOption, "has no rendering as rgb_array; it has: none"),
    ],
)
def test_each_mistake_in_a_reference_is_named(reference: str, error: type[Exception], complaint: str) -> None:
    if "jax" in complaint and "jax" in sys.modules:
        pytest.skip("jax is installed")
    with pytest.raises(error, match=complaint) as caught:
        load(reference)
    assert type(caught.value) is error


def test_the_names_of_served_environments_are_names() -> None:
    assert load(SPACES).name == "Spaces-v0"
    assert load("gymnasium:gymnasium_environments:own/Spaces-v0").name == "own-Spaces-v0"
    assert load("lake=gymnasium:FrozenLake-v1").name == "lake"


@pytest.mark.parametrize("module", ["gymnasium", "numpy"])
def test_without_the_extra_one_is_told_which_to_install(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for loaded in [name for name in sys.modules if name.startswith("envport_envs.gymnasium")]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=r"References with gymnasium: .* pip install 'envport\[gymnasium\]'"):
        load("gymnasium:FrozenLake-v1")


def test_without_the_package_that_registers_it_one_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "minigrid", None)
    with pytest.raises(MissingExtra, match=r"pip install 'envport\[gymnasium\]'"):
        load("gymnasium:MiniGrid-Empty-5x5-v0")
    monkeypatch.setitem(sys.modules, "ale_py", None)
    with pytest.raises(MissingExtra, match=r"pip install 'envport\[ale\]'"):
        load("gymnasium:ALE/Pong-v5")


def test_nothing_is_printed() -> None:
    code = """
from envport.registry import load
for reference in ("MiniGrid-Empty-5x5-v0", "FrozenLake-v1?render=rgb_array"):
    environment = load("gymnasium:" + reference).make()
    environment.reset(seed=0, task=None)
"""
    variables = {key: value for key, value in os.environ.items() if not key.startswith(("PYGAME", "SDL", "XDG"))}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=variables)
    assert (done.stdout, done.stderr) == ("", "")


async def test_a_game_of_ale_is_seen_as_it_is_on_the_screen() -> None:
    pytest.importorskip("ale_py", reason="the extra ale is not installed")
    async with table("gymnasium:ALE/Pong-v5") as episodes:
        tool = episodes.environment("it").tools["act"]
        assert tool.input_schema["properties"]["action"]["enum"][:4] == ["noop", "fire", "right", "left"]
        episode = await opened(episodes)
        (block,) = (await act(episode, "fire")).observation.content
        assert image(block).size == (160, 210)


def test_a_game_of_ale_keeps_the_contract() -> None:
    pytest.importorskip("ale_py", reason="the extra ale is not installed")
    report = check_environment("gymnasium:ALE/Breakout-v5", seeds=(0,), steps=5, another_process=False)
    assert [finding for finding in report.findings if finding.check != "runtime"] == []
