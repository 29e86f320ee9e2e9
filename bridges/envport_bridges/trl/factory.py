"""Makes the environment instances that TRL asks for; travels to other processes."""

from __future__ import annotations

import contextlib
import logging
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from envport.types import EnvironmentInfo
from envport_bridges.rollouts.backend import RolloutTarget
from envport_bridges.rollouts.connection import connect
from envport_bridges.trl.ahead import Ahead, OpeningPlan
from envport_bridges.trl.classes import environment_class, tools_of
from envport_bridges.trl.contract import takes_explicit_tools
from envport_bridges.trl.formats import CallFormat, format_for
from envport_bridges.trl.listings import TaskListing
from envport_bridges.trl.observations import placeholders_of
from envport_bridges.trl.outage import OnOutage, require_places, stops_at
from envport_bridges.trl.owner import find_owner
from envport_bridges.trl.play import Play
from envport_bridges.trl.rollout_environment import RolloutEnvironment, ScoredEnvironment, play_of
from envport_bridges.trl.scoring import score_for
from envport_bridges.trl.tools import ListedTool

__all__ = ["EnvironmentFactory"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class EnvironmentFactory:
    """What `environment_factory` takes: call it for an instance.

    Picklable; the class of the instances is made anew in each process, at the first call.

    Attributes:
        target: Where the environment is.
        info: The environment.
        scored: Whether instances own their reward (`get_reward`).
        asynchronous: Whether their tools are coroutine functions.
        explicit: Whether the model is shown the exact schemas, or what type hints can say of them.
        cast_strings: Whether text is read as the type that the schema asks for; `None` if the chat format decides.
        plan: Which episodes come, if they are to be opened ahead.
        listing: The tools that the model is shown, if tasks have tools of their own; otherwise the environment's.
        on_outage: What a run does when most of its episodes are lost.
    """

    target: RolloutTarget
    info: EnvironmentInfo
    scored: bool = False
    asynchronous: bool = False
    explicit: bool = True
    cast_strings: bool | None = None
    plan: OpeningPlan | None = None
    listing: TaskListing | None = None
    on_outage: OnOutage = "stop"

    def __call__(self) -> RolloutEnvironment:
        """Make an instance.

        Raises:
            ConfigurationError: A trainer makes it whose batches need more episodes than its gateway has places for.
        """
        play = Play(connect(self.target), self.info, self._ahead, self.listing)
        environment: RolloutEnvironment = self.environment_class(play)
        if (owner := find_owner()) is not None:
            require_places(self.info, owner)
            takes_out = getattr(owner.trainer, "takes_lost_out", False)
            score_for(owner.trainer, takes_out=takes_out, stops=stops_at(self.on_outage))
            self.read_as(environment, owner.trainer, owner.processing_class)
        # TRL never closes an instance. One that it drops is released here; the connection releases the others at exit.
        weakref.finalize(environment, _release, play).atexit = False
        return environment

    def read_as(self, environment: RolloutEnvironment, trainer: Any, processing_class: Any) -> None:
        """Have an instance read arguments as a trainer's model writes them.

        Args:
            environment: The instance.
            trainer: The trainer.
            processing_class: Its tokenizer or processor.
        """
        play_of(environment).placeholders = placeholders_of(processing_class)
        if self.explicit and takes_explicit_tools():
            found = format_for(trainer, processing_class, type(environment))
            play_of(environment).form = found if self.cast_strings is None else CallFormat(not self.cast_strings)

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if key not in ("environment_class", "_ahead")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)

    @cached_property
    def _ahead(self) -> Ahead | None:
        return Ahead(connect(self.target), self.plan) if self.plan is not None else None

    @cached_property
    def environment_class(self) -> type[Any]:
        """The class of the instances."""
        explicit = self.explicit and takes_explicit_tools()
        made = environment_class(
            self.listing.name if self.listing is not None else self.info.name,
            self.listing.tools if self.listing is not None else self.info.tools,
            ScoredEnvironment if self.scored else RolloutEnvironment,
            explicit=explicit,
            asynchronous=self.asynchronous and explicit,
        )
        if not explicit:
            _warn_of_losses(self.info.name, tools_of(made))
        return made


def _release(play: Play) -> None:
    with contextlib.suppress(RuntimeError):  # The connection was stopped, and closed the episode.
        play.connection.loop.submit(play.release())


def _warn_of_losses(name: str, tools: Mapping[str, ListedTool]) -> None:
    lost = [f"{tool.name}: {', '.join(tool.annotated.lost)}" for tool in tools.values() if tool.annotated.lost]
    renamed = [f"{tool.name!r} as {tool.identifier!r}" for tool in tools.values() if tool.identifier != tool.name]
    logger.warning(
        "the tools of %s are shown by type hints, not by their schemas. The model is not told of: %s. Renamed: %s.",
        name,
        "; ".join(lost) or "nothing",
        ", ".join(renamed) or "none",
    )
