"""Evaluation of policies, models and whole agents, on the same environments that are used for training.

The commands are `envport eval` and `envport compare`. `players` has what plays, `gateways` where it plays, and
`inspect_ai` the task that Inspect runs.
"""
