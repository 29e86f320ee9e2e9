"""A step of ours beside a step of a peer, with its own server and client, in the same rounds."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from envport.bench.gateways import start_gateway
from envport.bench.jobs import Job, Sample, SessionCosts
from envport.bench.peer_packages import peer_python
from envport.bench.peers import Peer, PeerTarget
from envport.bench.processes import Process
from envport.bench.profiles import GatewayProfile
from envport.errors import GatewayUnreachable

__all__ = ["OURS", "SERVED", "PeerRow", "measure_against"]

OURS = "rollouts"
"""The name of our side."""

SERVED = "served"
"""The name of our side where the peer's client plays it, and of that client."""


@dataclass(frozen=True, slots=True)
class PeerRow:
    """The cost of a step; medians over the rounds.

    Attributes:
        target: `rollouts`, `served`, or the peer's name and kind of environment.
        title: The name for people.
        sessions: How many sessions there were at a time, each with an episode.
        steps: Steps measured in all.
        steps_per_second: Steps per second.
        p50_ms: Median latency in milliseconds.
        p99_ms: 99th percentile of the latency in milliseconds.
        server_us: CPU time of the server per step, in microseconds.
        client_us: CPU time of the client per step, in microseconds.
        most: The ratio that is to be kept; `None` for ours.
        served_most: The served ratio that is to be kept; `None` for ours.
        ratio: Cost of our step divided by that of this one, server and client together: the median of the rounds'
            ratios. `None` for ours.
        ratios: The ratio in each round.
        served_ratio: CPU time of our server per step of the peer's client, divided by that of this server. `None` for
            ours.
        served_ratios: The same in each round.
        opening: What its client's sessions cost: the median of the rounds, and the most memory and threads. `None` for
            the rollout channel, which has no sessions.
        opened_ratio: Sessions opened per second at our gateway, divided by those at this server. `None` for ours.
        held_ratio: Memory of a session at our gateway, divided by that at this server. `None` for ours, and if it is
            too little to be seen.
    """

    target: str
    title: str
    sessions: int
    steps: int
    steps_per_second: float
    p50_ms: float
    p99_ms: float
    server_us: float
    client_us: float
    most: float | None
    served_most: float | None
    ratio: float | None
    ratios: tuple[float, ...]
    served_ratio: float | None
    served_ratios: tuple[float, ...]
    opening: SessionCosts | None
    opened_ratio: float | None
    held_ratio: float | None


@dataclass(frozen=True, slots=True)
class _Side:
    """A server, and the client that plays at it."""

    title: str
    url: str
    server: Process
    client: Process

    def play(self, sessions: int, steps: int) -> Sample:
        """Take steps."""
        job = Job("rollouts", OURS, self.url, self.server.pid, sessions, steps)
        answer = json.loads(self.client.ask(json.dumps(asdict(job))))
        if "error" in answer:
            raise GatewayUnreachable(f"{self.title}: {answer['error']}")
        costs = answer.pop("sessions", None)
        return Sample(**answer, sessions=SessionCosts(**costs) if costs is not None else None)


def measure_against(
    peer: Peer,
    concurrency: tuple[int, ...],
    steps: int,
    rounds: int,
    gateway: GatewayProfile | None,
    say: Callable[[str], None],
) -> list[PeerRow]:
    """Measure our step and the peer's.

    Args:
        peer: The peer.
        concurrency: Numbers of sessions.
        steps: Steps of each environment in a round.
        rounds: How often each environment is measured.
        gateway: Settings of our gateway, if it is to have any.
        say: Receives progress messages.

    Raises:
        ConfigurationError: Its virtual environment could not be made.
        GatewayUnreachable: A server gave a wrong answer or none.
    """
    python = peer_python(peer.name, peer.requirements, say)
    rows: list[PeerRow] = []
    for sessions in concurrency:
        # As for the other targets: new servers for each number of callers.
        with _sides(peer, python, gateway) as sides:
            samples: dict[str, list[Sample]] = {name: [] for name in sides}
            for turn in range(rounds):
                say(f"{sessions} sessions, round {turn + 1} of {rounds}")
                for name in sides if turn % 2 == 0 else reversed(sides):
                    samples[name].append(sides[name].play(sessions, steps))
            targets = {f"{peer.name}-{target.kind}": target for target in peer.targets}
            rows += [_row(name, side.title, sessions, samples, targets.get(name)) for name, side in sides.items()]
    return rows


@contextmanager
def _sides(peer: Peer, python: Path, profile: GatewayProfile | None) -> Generator[dict[str, _Side]]:
    scripts = Path(__file__).with_name(peer.name)
    # Isolated: a PYTHONPATH of ours would mix the packages of both.
    interpreter = (str(python), "-I")
    with ExitStack() as stack:
        gateway, url = start_gateway(stack, {}, profile)
        load = stack.enter_context(Process("envport.bench.load"))
        sides = {OURS: _Side("envport, rollout channel", url, gateway, load)}
        script = str(scripts / "client.py")
        client = stack.enter_context(Process(script, SERVED, interpreter=interpreter))
        served = f"{url}/environments/echo/{peer.served}"
        sides[SERVED] = _Side(f"envport, {peer.name}'s client and protocol", served, gateway, client)
        for target in peer.targets:
            server, client = (
                stack.enter_context(Process(str(scripts / f"{part}.py"), target.kind, interpreter=interpreter))
                for part in ("server", "client")
            )
            sides[f"{peer.name}-{target.kind}"] = _Side(target.title, server.read(), server, client)
        yield sides


def _row(name: str, title: str, sessions: int, samples: dict[str, list[Sample]], target: PeerTarget | None) -> PeerRow:
    own = samples[name]
    ratios: tuple[float, ...] = ()
    served: tuple[float, ...] = ()
    if target is not None:
        ratios = tuple(_cost(ours) / _cost(its) for ours, its in zip(samples[OURS], own, strict=True))
        served = tuple(_server(ours) / _server(its) for ours, its in zip(samples[SERVED], own, strict=True))
    opening, ours = _opening(own), _opening(samples[SERVED]) if target is not None else None
    return PeerRow(
        target=name,
        title=title,
        sessions=sessions,
        steps=sum(sample.count for sample in own),
        steps_per_second=median(sample.count / sample.seconds for sample in own),
        p50_ms=median(sample.p50 for sample in own) * 1e3,
        p99_ms=median(sample.p99 for sample in own) * 1e3,
        server_us=median(sample.cpu_seconds / sample.count for sample in own) * 1e6,
        client_us=median(sample.client_seconds / sample.count for sample in own) * 1e6,
        most=target.most if target is not None else None,
        served_most=target.served_most if target is not None else None,
        ratio=median(ratios) if ratios else None,
        ratios=ratios,
        served_ratio=median(served) if served else None,
        served_ratios=served,
        opening=opening,
        opened_ratio=ours.per_second / opening.per_second if ours and opening else None,
        held_ratio=ours.kb / opening.kb if ours and opening and opening.kb > 0 else None,
    )


def _opening(samples: list[Sample]) -> SessionCosts | None:
    costs = [sample.sessions for sample in samples if sample.sessions is not None]
    if not costs:
        return None
    # A server keeps most of the memory that it once had. So only the first round shows what sessions take.
    per_second = median(cost.per_second for cost in costs)
    return SessionCosts(per_second, max(cost.kb for cost in costs), max(cost.threads for cost in costs))


def _server(sample: Sample) -> float:
    """CPU time of a step in seconds, of the server alone."""
    return sample.cpu_seconds / sample.count


def _cost(sample: Sample) -> float:
    """CPU time of a step in seconds, server and client together."""
    return (sample.cpu_seconds + sample.client_seconds) / sample.count
