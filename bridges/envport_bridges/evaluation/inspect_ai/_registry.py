"""The objects that Inspect finds through the entry point group `inspect_ai`."""

from envport_bridges.evaluation.inspect_ai.agent_usage import agent_model
from envport_bridges.evaluation.inspect_ai.scorer import outcome
from envport_bridges.evaluation.inspect_ai.solver import play
from envport_bridges.evaluation.inspect_ai.task import episode

__all__ = ["agent_model", "episode", "outcome", "play"]
