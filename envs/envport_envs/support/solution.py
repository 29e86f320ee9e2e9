"""The reference solution of a scenario, with the customer who follows a script."""

from __future__ import annotations

from collections.abc import Iterator

from envport.types import LegalCall
from envport_envs.support.scenario import Change, Demand, Question, Scenario, Wish

__all__ = ["solution_calls"]


def solution_calls(scenario: Scenario) -> list[LegalCall]:
    """The calls that give the customer what the policy allows."""
    account = scenario.account
    asking = _reply("May I have your email and your postal code, please?")
    identity = {"email": account.email, "postal_code": account.address.postal_code}
    calls: list[LegalCall] = [*([asking] * (2 if scenario.reluctant else 1)), ("identify_customer", identity)]
    calls.append(("get_customer", {"user_id": account.user_id}))
    for wish in scenario.wishes:
        calls.extend(_steps(wish))
    return calls


def _steps(wish: Wish) -> Iterator[LegalCall]:
    if isinstance(wish, Demand):
        yield _reply("I am sorry, but I cannot do that.")
        yield _reply("No.")
        return
    yield "get_order", {"order_id": wish.order_id}
    if isinstance(wish, Question):
        yield _reply(f"It is {wish.answer}.")
        return
    yield from _change(wish)


def _change(wish: Change) -> Iterator[LegalCall]:
    tool, arguments = wish.call
    if wish.asked:
        yield _reply(wish.asked)
    yield tool, dict(arguments)
    if wish.asked:
        yield _reply("That is done.")


def _reply(message: str) -> LegalCall:
    return "reply", {"message": message}
