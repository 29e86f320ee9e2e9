"""An audit from its beginning to its verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from envport.definition import EnvironmentDefinition
from envport.environment import Solution
from envport.errors import InvalidEnvironment
from envport_bridges.audit import findings
from envport_bridges.audit.findings import AuditFinding, Floor, PlayerFigures
from envport_bridges.audit.players import CHEATS, IDLER, RANDOM, REFERENCE, AuditPlayer, follow
from envport_bridges.audit.playing import Auditorium, Played, Start, replaying

__all__ = ["Audit", "audit"]

_REPLAYED = 4


@dataclass(frozen=True)
class Audit:
    """What an audit found.

    Attributes:
        environment: Name of the environment.
        fingerprint: Fingerprint of its tool listing.
        source_fingerprint: Fingerprint of its source.
        episodes: Episodes that each player was to play.
        floor: What a player without skill earns.
        ceiling: What the environment declares as the most that play earns; `None` if it does not.
        players: What each player earned.
        findings: The checks.
    """

    environment: str
    fingerprint: str
    source_fingerprint: str | None
    episodes: int
    floor: Floor
    ceiling: float | None
    players: tuple[PlayerFigures, ...]
    findings: tuple[AuditFinding, ...]

    @property
    def passed(self) -> bool:
        """Whether no check failed."""
        return all(finding.status != "fail" for finding in self.findings)


async def audit(
    definition: EnvironmentDefinition,
    *,
    episodes: int = 20,
    most_calls: int = 100,
    seed: int = 0,
    cheats: Sequence[AuditPlayer] = (),
    tell: Callable[[str], None] = lambda line: None,
) -> Audit:
    """Play an environment without skill, and judge what that earns.

    Args:
        definition: The environment. Its own `cheats` play too.
        episodes: Episodes of each player; fewer if there are fewer tasks.
        most_calls: The most calls of an episode.
        seed: Chooses tasks, and begins the seeds.
        cheats: Players beside the built-in ones.
        tell: Told what is being done.
    """
    async with Auditorium.open(definition, most_calls) as room:
        starts = room.starts(episodes, seed)
        played: dict[str, list[Played]] = {}
        for player in (IDLER, RANDOM, *CHEATS, *cheats):
            tell(player.name)
            played[player.name] = await room.play(player, starts)
        tell("the environment's own cheats")
        own = await _own_cheats(room, starts)
        if both := own.keys() & played.keys():
            raise InvalidEnvironment(
                f"{definition.name}: cheats() has {min(both)!r}, which another player is called; give it another name"
            )
        played |= own
        tell(REFERENCE.name)
        solutions, reference = await _reference(room, starts)
        tell("replay")
        again = [one for name in (RANDOM.name, CHEATS[0].name) for one in played[name][:_REPLAYED]] + reference[
            :_REPLAYED
        ]
        pairs = [(one, (await room.play(replaying(one), [one.start]))[0]) for one in again]
    everything = [one for episodes in played.values() for one in episodes]
    figures = [PlayerFigures.of(one) for one in (*played.values(), *([reference] if reference else []))]
    floor = findings.floor_of(definition, figures)
    return Audit(
        definition.name,
        definition.fingerprint,
        definition.source_fingerprint,
        len(starts),
        floor,
        definition.prototype.reward_ceiling,
        tuple(figures),
        (
            findings.oracle(reference, solutions),
            findings.gap(definition, floor, figures[-1] if reference else None),
            findings.adversarial(floor, figures),
            findings.stalling(definition, everything),
            findings.replay(pairs),
            findings.leakage(definition),
            findings.masking(everything),
        ),
    )


async def _own_cheats(room: Auditorium, starts: Sequence[Start]) -> dict[str, list[Played]]:
    """What the cheats earn that the environment itself names, each for the tasks that have it."""
    played: dict[str, list[Played]] = {}
    for start in starts:
        for name, calls in room.cheats(start).items():
            cheat = AuditPlayer(name, "cheat", follow(Solution(calls)))
            played.setdefault(name, []).extend(await room.play(cheat, [start]))
    return played


async def _reference(room: Auditorium, starts: Sequence[Start]) -> tuple[dict[str, Solution], list[Played]]:
    solutions = {start.name: solution for start in starts if (solution := room.solution(start)) is not None}
    known = [start for start in starts if start.name in solutions]
    return solutions, [
        (await room.play(replace(REFERENCE, move=follow(solutions[start.name])), [start]))[0] for start in known
    ]
