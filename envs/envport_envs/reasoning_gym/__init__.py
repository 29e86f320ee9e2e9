"""Procedural reasoning tasks of reasoning-gym: `reasoning_gym:chain_sum`."""
