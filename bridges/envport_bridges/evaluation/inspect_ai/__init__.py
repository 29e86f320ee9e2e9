"""Evaluation with Inspect: every environment is an Inspect task.

inspect eval envport_bridges/episode -T env=http://127.0.0.1:8000/environments/catch --model openai/...
"""

from envport_bridges.evaluation.extra import require_extra

require_extra()

from envport_bridges.evaluation.inspect_ai.task import episode  # noqa: E402 - it needs the extra

__all__ = ["episode"]
