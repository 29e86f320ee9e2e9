"""Evaluation: policies, models and whole agents on the environments that others are trained on.

The command line is `envport eval` and `envport compare`; `envport_bridges.inspect_ai` has the task that Inspect runs.
"""
