"""The result of an evaluation, read from Inspect's log."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, cast, get_args

from inspect_ai.log import EvalLog, EvalSample, read_eval_log

from envport.errors import InvalidOption
from envport.types import FaultOwner
from envport_bridges.evaluation.agent_models.served import AGENT_MODEL
from envport_bridges.evaluation.inspect_ai.dataset import CLUSTER
from envport_bridges.evaluation.inspect_ai.scorer import REWARD, SUCCESS
from envport_bridges.evaluation.inspect_ai.solver import FAULT
from envport_bridges.evaluation.inspect_ai.task import IDENTITY, SANDBOXED
from envport_bridges.evaluation.intervals import Estimate, mean_of, pass_at, pass_hat, share_of
from envport_bridges.evaluation.losses import LostEpisode, WorstCase
from envport_bridges.evaluation.settings import settings_of

__all__ = ["Identity", "PlayedEpisode", "Result", "TaskResult"]

_OF_TASK = ("reward", "success", "steps", "tool_errors")
_QUOTED = re.compile(r"'(\{\w+\})'")
# A log says it in words alone.
_BY_LIMIT = re.compile(r"^its \w+ limit was exceeded$|^the (player|agent) was stopped after ")
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
        seed: The seed from which the episodes' seeds were made; `None` if the result pools several.
        success_at: The lowest reward that counts as a success.
        max_calls: Number of calls after which a player was stopped.
        envport: Version of envport.
        source: Fingerprint of the environment's source; `None` if it has none, or in a log that does not hold it.
        limits: Limits of its episodes, without those on their number; `None` in a log that does not hold them.
    """

    environment: str
    version: str
    options: dict[str, Any]
    fingerprint: str
    reward: str
    split: str | None
    seed: int | None
    success_at: float
    max_calls: int
    envport: str
    source: str | None = None
    limits: dict[str, Any] | None = None


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
        broke: How the player's own program failed, if it did.
        cost: Dollars that the models cost; `None` if their price is not known.
        texts: Fingerprint of the prompt and the first observation; `None` in a log that does not have it.
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
    broke: str | None = None
    cost: float | None = None
    texts: str | None = None


@dataclass(frozen=True)
class TaskResult:
    """The episodes of one task.

    Attributes:
        task: The task.
        episodes: Number of scored episodes.
        reward: The mean reward.
        success: The share of successes.
        steps: The mean number of steps.
        tool_errors: The mean number of refused calls.
    """

    task: str
    episodes: int
    reward: float
    success: float
    steps: float
    tool_errors: float


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
        settings: Limits and settings with which the player played.
        seeds: The seeds whose results it pools; empty for one result.
        sandboxed: Whether the agent ran in a sandbox; `None` if no agent played, or the log does not say.
    """

    identity: Identity
    player: str
    status: str
    epochs: int
    played: tuple[PlayedEpisode, ...]
    lost: tuple[LostEpisode, ...] = ()
    missing: int = 0
    log: str = ""
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    seeds: tuple[int, ...] = ()
    sandboxed: bool | None = None
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
            settings=settings_of(log),
            sandboxed=(log.eval.metadata or {}).get(SANDBOXED),
        )

    @property
    def tasks(self) -> int:
        """Number of different tasks with scored episodes."""
        return len({one.task for one in self.played})

    @property
    def lost_share(self) -> float:
        """The share of the episodes that were played and lost."""
        return len(self.lost) / max(1, len(self.lost) + len(self.played))

    @property
    def seed(self) -> str:
        """The seed, or all that it pools, for people to read."""
        return f"{', '.join(map(str, self.seeds))} pooled" if self.seeds else f"{self.identity.seed}"

    @property
    def cost(self) -> float | None:
        """Dollars that the scored episodes cost; `None` if the price of a model is not known."""
        costs = [one.cost for one in self.played if one.cost is not None]
        return sum(costs) if costs and len(costs) == len(self.played) else None

    @property
    def stopped_by_limits(self) -> dict[str, int]:
        """How many of the scored episodes ended because their player was stopped by a limit, by the limit's text."""
        return dict(Counter(one.stopped for one in self.played if _BY_LIMIT.match(one.stopped)).most_common())

    def worst_case(self) -> WorstCase:
        """The result in which every lost episode counts as failed."""
        return WorstCase.of(self.played, self.lost)

    def broken_setup(self) -> str | None:
        """How the player's program failed, if it did so before its first step in every episode; else `None`."""
        broke = [one.broke for one in self.played if one.broke is not None and not one.steps]
        return broke[0] if broke and len(broke) == len(self.played) else None

    def estimate(self, value: str) -> Estimate:
        """The mean of an attribute of the episodes. Each sample counts once, and tasks count as independent."""
        return mean_of(*self._by_sample(value))

    def success_rate(self) -> Estimate:
        """The share of successes, with an interval that stays within 0 and 1."""
        return share_of(*self._by_sample("success"))

    def _by_sample(self, value: str) -> tuple[list[list[float]], list[str]]:
        groups = self.by_sample.values()
        return [[float(getattr(one, value)) for one in group] for group in groups], [g[0].task for g in groups]

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
        worst = self.worst_case()
        return {
            "identity": asdict(self.identity),
            "player": self.player,
            "seeds": list(self.seeds) or [self.identity.seed],
            "status": self.status,
            "settings": {name: value for name, value in self.settings.items() if value is not None},
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
            "worst_case": {
                "lost_reward": worst.lost_reward,
                "reward": asdict(worst.reward),
                "success": asdict(worst.success),
                "pass_at": {str(k): worst.pass_at(k) for k in ks},
                "pass_hat": {str(k): worst.pass_hat(k) for k in ks},
            },
            "stopped_by_limits": self.stopped_by_limits,
            "sandboxed": self.sandboxed,
            **{name: self.estimate(name).mean for name in ("steps", "tool_errors", "tokens", "seconds")},
            "cost": self.cost,
            "by_task": [asdict(one) for one in self.by_task()],
            "lost": [asdict(one) for one in self.lost],
            "log": self.log,
        }

    def rewards_by_task(self) -> dict[str, list[float]]:
        """The rewards of each task's episodes."""
        rewards: dict[str, list[float]] = defaultdict(list)
        for one in self.played:
            rewards[one.task].append(one.reward)
        return dict(rewards)

    def by_task(self) -> list[TaskResult]:
        """The result of each task, the lowest reward first."""
        episodes: dict[str, list[PlayedEpisode]] = defaultdict(list)
        for one in self.played:
            episodes[one.task].append(one)
        found = [
            TaskResult(task, len(of_task), *(fmean(getattr(one, name) for one in of_task) for name in _OF_TASK))
            for task, of_task in episodes.items()
        ]
        return sorted(found, key=lambda one: (one.reward, one.task))


def _player(log: EvalLog) -> str:
    arguments = log.eval.task_args
    for kind in ("policy", "agent"):
        if arguments.get(kind):
            model = (log.eval.metadata or {}).get(AGENT_MODEL)
            name = f"{kind} {_names_only(arguments[kind])}"
            return f"{name} with {model['name']}" if model else name
    return f"model {log.eval.model}"


def _names_only(text: str) -> str:
    """A command line or reference for display, without folders and without quotes around placeholders."""
    return _QUOTED.sub(r"\1", _FILE.sub(r"\1", text))


def _was_interrupted(sample: EvalSample) -> bool:
    return sample.error is None or sample.error.message.startswith("CancelledError")


def _lost(sample: EvalSample) -> LostEpisode:
    why = sample.error.message if sample.error is not None else "it was not scored"
    # What fails on this side of the gateway, such as a model's server, names no owner.
    owner = sample.store.get(FAULT, "infrastructure")
    return LostEpisode(str(sample.id), why, owner, str((sample.metadata or {}).get(CLUSTER, sample.id)))


def _cost(sample: EvalSample) -> float | None:
    costs = [usage.total_cost for usage in sample.model_usage.values()]
    known = [cost for cost in costs if cost is not None]
    return sum(known) if known and len(known) == len(costs) else None


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
        cost=_cost(sample),
        seed=int(facts["seed"]),
        outcome=facts["outcome"],
        stopped=str(stopped),
        fault=facts.get("fault"),
        fingerprint=facts.get("fingerprint"),
        broke=facts.get("broke"),
        texts=facts.get("texts"),
    )
