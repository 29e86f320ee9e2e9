"""What is said of a batch whose agents did not work: why, and what their programs wrote in the end."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence

from envport.errors import ConfigurationError
from envport_bridges.agents.playing import AgentEpisode

__all__ = ["tell_of_faults"]

logger = logging.getLogger(__name__)

_RESIDENT_PAGE = "bridges/envport_bridges/agents/RESIDENT.md"
_RESIDENT = (
    "With resident=True, a program reads its missions from its standard input, and its variables name no episode and "
    f"no model (see {_RESIDENT_PAGE})."
)


def tell_of_faults(episodes: Sequence[AgentEpisode], *, deadline: float, resident: bool) -> None:
    """Warn of agents that crashed, and of a batch in which no agent had a turn of its model.

    Lost episodes do not count: their agents are not to blame.

    Args:
        episodes: The batch.
        deadline: Seconds that an agent had for an episode.
        resident: Whether a process of the agent plays one mission after another.

    Raises:
        ConfigurationError: All agents failed before they had a turn. They would be trained on nothing, batch after
            batch.
    """
    played = [one for one in episodes if one.ended is not None and not one.score.lost]
    if not played:
        return
    crashed = [one for one in played if one.ending == "crashed"]
    idle = not any(one.model_calls for one in played)
    if idle and len(crashed) == len(played):
        output = played[-1].ended.output.strip() if played[-1].ended is not None else ""
        raise ConfigurationError(
            f"the agent failed in all of {len(played)} episodes before it asked its model for anything. "
            f"{f'{_RESIDENT} ' if resident else ''}The end of its output: {output or '(none)'}"
        )
    if crashed and crashed[-1].ended is not None:
        logger.warning(
            "%d of %d agents crashed, one of them so: %s", len(crashed), len(played), crashed[-1].ended.broke
        )
    if idle:
        why = _refusals(played) or _idleness(played, deadline, resident)
        logger.warning("nothing of this batch is trained, because no agent had a turn of the model: %s", why)


def _refusals(played: Sequence[AgentEpisode]) -> str:
    refused = sum((one.session.refused for one in played if one.session is not None), Counter[str]())
    return f"what they asked was refused ({', '.join(refused)})" if refused else ""


def _idleness(played: Sequence[AgentEpisode], deadline: float, resident: bool) -> str:
    """How agents ended that asked for no turn, and what they may lack."""
    numbers = Counter(one.ending for one in played)
    exited = numbers["exited"]
    longest = max((one.seconds for one in played if one.ending == "exited"), default=0.0)
    how = {
        "exited": f"exited by themselves, after {longest:.1f} s at most",
        "deadline": f"were stopped at deadline={deadline:g} s",
        "crashed": "crashed",
    }
    ends = [
        f"{f'all {number}' if number == len(played) else number} {how[ending]}"
        for ending, number in numbers.items()
        if ending is not None
    ]
    hints = [f"{', '.join(ends)}."]
    if resident:
        hints.append(_RESIDENT)
    else:
        hints.append(
            "Do they use OPENAI_BASE_URL or ANTHROPIC_BASE_URL?"
            if exited
            else "Do they need longer to start, or wait for another server than that of OPENAI_BASE_URL?"
        )
        hints.append("A program that takes missions on its standard input needs resident=True.")
    last = next((one.ended.last for one in reversed(played) if one.ended is not None and one.ended.last), "")
    return " ".join([*hints, *([f"The end of the output of one: {last}"] if last else [])])
