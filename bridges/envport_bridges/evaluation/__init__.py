"""Evaluation of policies, models and whole agents, on the same environments that are used for training.

The commands are `envport eval` and `envport compare`. `envport_bridges.inspect_ai` has the task that Inspect runs.
"""
