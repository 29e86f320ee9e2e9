"""Evaluation with Inspect: every environment is an Inspect task.

inspect eval envport_bridges/episode -T env=http://127.0.0.1:8000/environments/catch --model openai/...
"""

from importlib.util import find_spec

from envport.errors import MissingExtra

if find_spec("inspect_ai") is None:
    raise MissingExtra("envport_bridges.inspect_ai", "eval")

from envport_bridges.inspect_ai.task import episode

__all__ = ["episode"]
