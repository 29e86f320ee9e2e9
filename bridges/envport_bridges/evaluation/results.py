"""The result of an evaluation, read from Inspect's log."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast, get_args

from inspect_ai.log import EvalLog, EvalSample, read_eval_log

from envport.errors import InvalidOption
from envport.types import FaultOwner
from envport_bridges.evaluation.inspect_ai.dataset import CLUSTER
from envport_bridges.evaluation.inspect_ai.scorer import REWARD, SUCCESS
from envport_bridges.evaluation.inspect_ai.solver import FAULT
from envport_bridges.evaluation.inspect_ai.task import IDENTITY
from envport_bridges.evaluation.intervals import Estimate, mean_of, pass_at, pass_hat, share_of

__all__ = ["Identity", "LostEpisode", "PlayedEpisode", "Result"]

_QUOTED = re.compile(r"'(\{\w+\})'")
_FILE = re.compile(r"[^\s'\"=]*/([^\s'\"/]+)")


@dataclass(frozen=True)
class Identity:
    """What was measured. Results with the same identity can be compared.

    Attributes:
        environment: Name of the environment.
        version: The environment's version.
        options: The environment's options.
        fingerprint: Fingerprint of the listing of its declared tools.
        reward: How the rewards of the steps are combined into the reward of an episode.
        split: The split of the tasks.
        seed: The seed from which the episodes' seeds were made.
        success_at: The lowest reward that counts as a success.
        max_calls: Number of calls after which a player was stopped.
        envport: Version of envport.
    """

    environment: str
    version: str
    options: dict[str, Any]
    fingerprint: str
    reward: str
    split: str | None
    seed: int
    success_at: float
    max_calls: int
    envport: str


@dataclass(frozen=True)
class PlayedEpisode:
    """A scored episode.

    Attributes:
        sample: Id of its sample.
        epoch: Number of the attempt at the sample.
        task: The task; several samples may share it.
        reward: Its reward.
        success: Whether it was a success.
        steps: Calls that reached the environment.
        tool_errors: Calls that were refused.
        seconds: How long it took.
        tokens: Tokens that the models used.
        seed: Its seed.
        outcome: Why the episode ended.
        stopped: Why the player stopped.
        fault: `player` if the episode failed by a fault of its player.
        fingerprint: Fingerprint of the episode's tool listing; `None` in a log that does not have it.
    """

    sample: str
    epoch: int
    task: str
    reward: float
    success: bool
    steps: int
    tool_errors: int
    seconds: float
    tokens: int
    seed: int
    outcome: str | None
    stopped: str
    fault: FaultOwner | None = None
    fingerprint: str | None = None


@dataclass(frozen=True)
class LostEpisode:
    """An episode that was lost to a fault, and has no score.

    Attributes:
        sample: Id of its sample.
        why: The reason, for people to read.
        fault: Who owns the fault.
    """

    sample: str
    why: str
    fault: FaultOwner


@dataclass(frozen=True)
class Result:
    """The result of evaluating one player on one environment.

    Attributes:
        identity: What was measured.
        player: The player.
        status: Inspect's status of the evaluation: `success`, `cancelled`, `error`, `started`.
        epochs: How often each sample should have been played.
        played: The scored episodes.
        lost: The episodes that were lost and not scored.
        missing: Episodes that were never played.
        log: Location of Inspect's log.
    """

    identity: Identity
    player: str
    status: str
    epochs: int
    played: tuple[PlayedEpisode, ...]
    lost: tuple[LostEpisode, ...] = ()
    missing: int = 0
    log: str = ""
    by_sample: dict[str, list[PlayedEpisode]] = field(default_factory=dict[str, list[PlayedEpisode]], repr=False)

    def __post_init__(self):
        for one in self.played:
            self.by_sample.setdefault(one.sample, []).append(one)

    @classmethod
    def read(cls, location: str | Path) -> Result:
        """Read a log.

        Raises:
            InvalidOption: It is not the log of an evaluation with envport.
        """
        if "://" not in str(location) and not Path(location).exists():
            raise InvalidOption(f"there is no file {location}; it has to be a log of Inspect, such as logs/NAME.eval")
        try:
            log = read_eval_log(str(location))
        except (OSError, ValueError, KeyError) as error:
            raise InvalidOption(f"{location} is not a log of Inspect: {error}") from None
        return cls.of(log)

    @classmethod
    def of(cls, log: EvalLog) -> Result:
        """Read the result from a loaded log.

        Raises:
            InvalidOption: It is not the log of an evaluation with envport.
        """
        found = (log.eval.metadata or {}).get(IDENTITY)
        if not isinstance(found, dict):
            raise InvalidOption(f"{log.location} is not the log of an evaluation with envport")
        samples = log.samples or []
        epochs = log.eval.config.epochs or 1
        expected = len(log.eval.dataset.sample_ids or ()) * epochs
        played = [_played(sample) for sample in samples if sample.scores]
        ended = [sample for sample in samples if sample.scores or not _was_interrupted(sample)]
        lost = [_lost(sample) for sample in ended if not sample.scores]
        return cls(
            identity=Identity(**cast("dict[str, Any]", found)),
            player=_player(log),
            status=log.status,
            epochs=epochs,
            played=tuple(sorted(played, key=lambda one: (one.sample, one.epoch))),
            lost=tuple(lost),
            missing=max(0, expected - len(ended)),
            log=log.location,
        )

    @property
    def tasks(self) -> int:
        """Number of different tasks with scored episodes."""
        return len({one.task for one in self.played})

    def estimate(self, value: str) -> Estimate:
        """The mean of an attribute of the episodes. Each sample counts once, and tasks count as independent."""
        return mean_of(*self._by_sample(value))

    def success_rate(self) -> Estimate:
        """The share of successes, with an interval that stays within 0 and 1."""
        return share_of(*self._by_sample("success"))

    def _by_sample(self, value: str) -> tuple[list[float], list[str]]:
        groups = self.by_sample.values()
        return [_mean([float(getattr(one, value)) for one in group]) for group in groups], [g[0].task for g in groups]

    def pass_at(self, k: int) -> float | None:
        """The probability that at least one of k attempts succeeds (arXiv:2107.03374)."""
        return pass_at(self._attempts(), k)

    def pass_hat(self, k: int) -> float | None:
        """The probability that all k attempts succeed (arXiv:2406.12045)."""
        return pass_hat(self._attempts(), k)

    def _attempts(self) -> list[list[bool]]:
        return [[one.success for one in group] for group in self.by_sample.values()]

    def faults(self) -> dict[FaultOwner, int]:
        """How many episodes had a fault, by its owner. Those of the player are scored, all others are lost."""
        owners = Counter[str]([one.fault for one in self.lost] + [one.fault for one in self.played if one.fault])
        return {owner: owners[owner] for owner in get_args(FaultOwner)}

    def document(self) -> dict[str, Any]:
        """The result as JSON."""
        ks = sorted({1, self.epochs})
        return {
            "identity": asdict(self.identity),
            "player": self.player,
            "status": self.status,
            "epochs": self.epochs,
            "tasks": self.tasks,
            "episodes": len(self.played),
            "infrastructure_failures": len(self.lost),
            "faults": self.faults(),
            "missing": self.missing,
            "reward": asdict(self.estimate("reward")),
            "success": asdict(self.success_rate()),
            "pass_at": {str(k): self.pass_at(k) for k in ks},
            "pass_hat": {str(k): self.pass_hat(k) for k in ks},
            **{name: self.estimate(name).mean for name in ("steps", "tool_errors", "tokens", "seconds")},
            "lost": [asdict(one) for one in self.lost],
            "log": self.log,
        }

    def rewards_by_task(self) -> dict[str, list[float]]:
        """The rewards of each task's episodes."""
        rewards: dict[str, list[float]] = defaultdict(list)
        for one in self.played:
            rewards[one.task].append(one.reward)
        return dict(rewards)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _player(log: EvalLog) -> str:
    arguments = log.eval.task_args
    for kind in ("policy", "agent"):
        if arguments.get(kind):
            return f"{kind} {_names_only(arguments[kind])}"
    return f"model {log.eval.model}"


def _names_only(text: str) -> str:
    """A command line or reference for display, without folders and without quotes around placeholders."""
    return _QUOTED.sub(r"\1", _FILE.sub(r"\1", text))


def _was_interrupted(sample: EvalSample) -> bool:
    return sample.error is None or sample.error.message.startswith("CancelledError")


def _lost(sample: EvalSample) -> LostEpisode:
    why = sample.error.message if sample.error is not None else "it was not scored"
    # What fails on this side of the gateway, such as a model's server, names no owner.
    return LostEpisode(str(sample.id), why, sample.store.get(FAULT, "infrastructure"))


def _played(sample: EvalSample) -> PlayedEpisode:
    assert sample.scores is not None
    score = next(iter(sample.scores.values()))
    values, facts = cast("dict[str, float]", score.value), score.metadata or {}
    stopped = f"its {sample.limit.type} limit was exceeded" if sample.limit is not None else facts["stopped"]
    return PlayedEpisode(
        sample=str(sample.id),
        epoch=sample.epoch,
        task=str(sample.metadata[CLUSTER]),
        reward=float(values[REWARD]),
        success=bool(values[SUCCESS]),
        steps=int(facts["steps"]),
        tool_errors=int(facts["tool_errors"]),
        seconds=sample.total_time or 0.0,
        tokens=sum(usage.total_tokens for usage in sample.model_usage.values()),
        seed=int(facts["seed"]),
        outcome=facts["outcome"],
        stopped=str(stopped),
        fault=facts.get("fault"),
        fingerprint=facts.get("fingerprint"),
    )
