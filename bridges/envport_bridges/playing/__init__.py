"""Plays episodes, for any purpose: places, seats at an episode, policies, and agent programs."""
