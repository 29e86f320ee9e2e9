"""`envport episodes replay`."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import anyio
import typer

from envport.checker.recordings import Replayer, replayer
from envport.cli import console
from envport.cli.episodes.diff import difference_document, place_of, tell_difference
from envport.cli.groups import grouped
from envport.cli.loading import load_environment
from envport.cli.options import REFERENCE_EXAMPLES, AsJson
from envport.cli.stored import ArchiveOptions, FilterOptions, found_episodes, named_episode
from envport.definition import EnvironmentDefinition
from envport.errors import ConfigurationError, EpisodeFailed, InvalidRequest, UpstreamLost
from envport.trajectories.archive import Archive
from envport.trajectories.difference import Difference, first_difference
from envport.trajectories.recorded import RecordedEpisode, read_recorded

__all__ = ["replay"]

_SHOWN = 3


@grouped
def replay(
    episode: Annotated[str | None, typer.Argument(metavar="EPISODE", help="The episode's handle.")] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Replay all that the filters let through, and tell each environment's score.")
    ] = False,
    reference: Annotated[
        str | None,
        typer.Option(
            "--with",
            metavar="REFERENCE",
            help="Play with this environment, and not with the one that is found under the recorded name: "
            f"{REFERENCE_EXAMPLES}.",
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="With --all: the most episodes to replay.")] = 100,
    as_json: AsJson = False,
    *,
    store: ArchiveOptions,
    wanted: FilterOptions,
) -> None:
    """Make the calls of a recorded episode again, in a fresh one with the same task and seed, and compare.

    It is played in this process, in the runtime that the environment declares. Times do not count. Ends with 0 if
    everything is equal, with 1 if something differs.
    """
    if every == (episode is not None):
        raise ConfigurationError("give the handle of an episode, or --all with filters")
    with _silent():
        replays = anyio.run(_replay_all, store, _Choice(episode, wanted, limit, reference))
    if as_json:
        console.document(_document(replays))
    elif episode is not None:
        _tell(replays[0])
    else:
        _tell_scores(replays)
    if episode is not None and replays[0].why_not is not None:
        raise InvalidRequest(f"{episode} cannot be replayed: {replays[0].why_not}")
    if not any(it.why_not is None for it in replays):
        raise ConfigurationError("no episode was replayed" + (": none fits" if not replays else ""))
    raise typer.Exit(1 if any(it.difference is not None for it in replays) else 0)


@contextmanager
def _silent() -> Generator[None]:
    """Log nothing: what an environment does wrong in a replay is told as a difference."""
    before = logging.root.manager.disable
    logging.disable()
    try:
        yield
    finally:
        logging.disable(before)


@dataclass(frozen=True)
class _Choice:
    """What to replay.

    Attributes:
        episode: Handle of the only episode.
        wanted: Which episodes, if there is none.
        limit: The most of them.
        reference: The environment to play with.
    """

    episode: str | None
    wanted: FilterOptions
    limit: int
    reference: str | None


@dataclass(frozen=True)
class _Replay:
    """What a replay showed.

    Attributes:
        episode: Handle of the episode.
        environment: Name of its environment.
        calls: How many calls are recorded.
        difference: The first difference; `None` if there is none, or if it was not replayed.
        why_not: Why it could not be replayed.
        remarks: What may be the cause of a difference.
    """

    episode: str
    environment: str
    calls: int
    difference: Difference | None = None
    why_not: str | None = None
    remarks: list[str] = field(default_factory=list[str])


async def _replay_all(store: ArchiveOptions, choice: _Choice) -> list[_Replay]:
    players = _Players(choice.reference)
    async with store.opened() as archive, players.stack:
        return [await _replay(recorded, players) async for recorded in _chosen(archive, choice)]


async def _chosen(archive: Archive, choice: _Choice) -> AsyncIterator[RecordedEpisode]:
    if choice.episode is not None:
        yield await named_episode(archive, choice.episode)
        return
    wanted = choice.wanted.filter()
    if wanted.lost is None:
        # The fault that ended an episode does not come again.
        wanted = replace(wanted, lost=False)
    async for stored in found_episodes(archive, wanted, choice.limit):
        if console.is_terminal():
            console.status(f"replaying {stored.info.episode_id}")
        yield await read_recorded(archive, stored.info.episode_id)
    if console.is_terminal():
        console.status("")


class _Players:
    """What plays episodes again, one for each environment.

    Args:
        reference: The environment to play all with; each with that of its recorded name if not given.

    Attributes:
        stack: Ends them all.
    """

    def __init__(self, reference: str | None):
        self.stack = AsyncExitStack()
        self._reference = reference
        self._players: dict[str, tuple[EnvironmentDefinition, Replayer]] = {}

    async def of(self, environment: str) -> tuple[EnvironmentDefinition, Replayer]:
        """The environment and what plays it.

        Raises:
            ConfigurationError: It cannot be loaded.
        """
        reference = self._reference or environment
        if reference not in self._players:
            spec = load_environment(reference)
            self._players[reference] = spec, await self.stack.enter_async_context(replayer(spec))
        return self._players[reference]


async def _replay(recorded: RecordedEpisode, players: _Players) -> _Replay:
    trajectory = recorded.trajectory
    environment = trajectory.episode.environment
    spec, player = await players.of(environment)
    remarks: list[str] = []
    told = _Replay(trajectory.episode.episode_id, environment, len(trajectory.steps), remarks=remarks)
    if spec.cls.version != trajectory.environment_version:
        remarks.append(f"the environment is version {spec.cls.version} here, and was {trajectory.environment_version}")
    try:
        now = await player.play(trajectory)
    except (InvalidRequest, UpstreamLost, EpisodeFailed) as error:
        return replace(told, why_not=str(error))
    difference = first_difference(trajectory, now)
    if now.fingerprint != trajectory.fingerprint or (difference is not None and not difference.step):
        what = "begins otherwise here" if now.fingerprint == trajectory.fingerprint else "has other tools here"
        remarks.append(f"it {what}: if the gateway served it with options, name them: --with '{environment}?...'")
    return replace(told, difference=difference)


def _tell(replayed: _Replay) -> None:
    for remark in replayed.remarks:
        console.note(f"Note: {remark}")
    if replayed.difference is not None:
        tell_difference(replayed.difference, "recorded", "replayed")
    elif replayed.why_not is None:
        console.line(f"Equal: the first observation and all {replayed.calls} calls.", "green")


def _tell_scores(replays: list[_Replay]) -> None:
    for name, them in _by(replays, lambda it: it.environment).items():
        played = [it for it in them if it.why_not is None]
        equal = sum(it.difference is None for it in played)
        share = f" ({equal / len(played):.1%})" if played else ""
        console.heading(f"{name}: {equal} of {len(played)} replays are equal{share}")
        differing = [(place_of(it.difference), it.episode) for it in played if it.difference is not None]
        for place, of in _by(differing, lambda it: it[0]).items():
            shown = ", ".join(handle for _, handle in of[:_SHOWN])
            more = f" and {len(of) - _SHOWN} more" if len(of) > _SHOWN else ""
            console.line(f"  {len(of)} differ first at {place}: {shown}{more}", "yellow")
        for remark, of in _by([(it, remark) for it in them for remark in it.remarks], lambda it: it[1]).items():
            console.note(f"  Note on {len(of)} of them: {remark}")
        for why, of in _by([it for it in them if it.why_not is not None], lambda it: str(it.why_not)).items():
            console.note(f"  {len(of)} not replayed: {why}")


def _document(replays: list[_Replay]) -> dict[str, Any]:
    scores: dict[str, Any] = {}
    for name, them in _by(replays, lambda it: it.environment).items():
        played = [it for it in them if it.why_not is None]
        equal = sum(it.difference is None for it in played)
        scores[name] = {
            "replayed": len(played),
            "equal": equal,
            "determinism": equal / len(played) if played else None,
            "not_replayed": len(them) - len(played),
        }
    return {
        "environments": scores,
        "episodes": [
            {
                "episode_id": it.episode,
                "equal": it.difference is None if it.why_not is None else None,
                "difference": difference_document(it.difference),
                "why_not": it.why_not,
                "remarks": it.remarks,
            }
            for it in replays
        ],
    }


def _by(items: list[Any], key: Callable[[Any], str]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = defaultdict(list)
    for item in items:
        found[key(item)].append(item)
    return found
