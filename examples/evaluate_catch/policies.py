"""Reference policies: what a player gets who plays each of these environments as it is meant to be played."""

from __future__ import annotations

from agent import towards_the_ball

from envport_bridges.evaluation.players.policies import PolicyCall, View


def catch(view: View) -> PolicyCall | None:
    return "move", {"direction": towards_the_ball(view.observation)}


def counter(view: View) -> PolicyCall | None:
    return ("count", {}) if len(view.history) < 3 else None


def echo(view: View) -> PolicyCall | None:
    return ("echo", {"message": "hello"}) if not view.history else None


def reference(view: View) -> PolicyCall | None:
    """The reference policy of whichever environment is played; does nothing where there is none."""
    policy = {"catch": catch, "counter": counter, "echo": echo}.get(view.environment)
    return policy(view) if policy is not None else None
