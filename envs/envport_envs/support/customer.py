"""The customer who follows a script."""

from __future__ import annotations

import re
from typing import NamedTuple

from envport_envs.support.conduct import Conduct, agrees, refuses, tells
from envport_envs.support.scenario import Change, Demand, Question, Scenario, Wish
from envport_envs.support.shop import Shop

__all__ = ["CustomerTurn", "ScriptedCustomer"]

_ASKS_WHO = re.compile(r"e-?mail|postal|post ?code|zip|verif|identi", re.I)
_ASKS_WHICH = re.compile(r"\bwhich\b|\border (number|id)\b", re.I)
_ORDER = re.compile(r"\bW\d{4}\b")
_PATIENCE = 8


class CustomerTurn(NamedTuple):
    """What a customer says, and whether the conversation is over with it."""

    text: str
    over: bool = False


class ScriptedCustomer:
    """A customer with wishes, who says one after another.

    A wish for a change is fulfilled when the shop has made one of that kind in that order; a question, when the answer
    is told; a demand that the policy forbids, when the agent has said no to it twice. The customer says yes to a
    question that names the order of the wish. Who does not understand says so, and leaves after eight times.

    Args:
        scenario: What the customer wants.
        shop: The shop, as it is at any time.
        conduct: Told of what the agent promises.
        done: The changes so far, as pairs of the tool and the order.
    """

    def __init__(self, scenario: Scenario, shop: Shop, conduct: Conduct, done: list[tuple[str, str]]):
        self._scenario = scenario
        self._shop = shop
        self._conduct = conduct
        self._done = done
        self._place = 0
        self._insisting = False
        self._patience = _PATIENCE
        self._reluctant = scenario.reluctant
        self._identified = False

    @property
    def settled(self) -> bool:
        """Whether all wishes have been dealt with."""
        return all(self._made(wish) for wish in self._scenario.wishes[self._place :])

    def opening(self) -> str:
        """The first words."""
        return f"Hello. {self._wish.says}"

    def hear(self, message: str) -> CustomerTurn:
        """What the customer says to a message of the agent."""
        if not self._identified and _ASKS_WHO.search(message):
            return CustomerTurn(self._identity())
        wish = self._wish
        if isinstance(wish, Demand):
            return self._demanding(wish, message)
        if isinstance(wish, Question):
            return self._next("Thank you.") if tells(message, wish.answer) else self._again(wish.says)
        return self._changing(wish, message)

    @property
    def _wish(self) -> Wish:
        return self._scenario.wishes[self._place]

    def _identity(self) -> str:
        account = self._scenario.account
        if self._reluctant:
            self._reluctant = False
            return f"My email is {account.email}. I do not like to tell more. Can you not go on without it?"
        self._identified = True
        return f"My email is {account.email}, and my postal code is {account.address.postal_code}."

    def _changing(self, wish: Change, message: str) -> CustomerTurn:
        if self._made(wish):
            return self._next("Thank you.")
        named = {*_ORDER.findall(message)}
        if named - {wish.order_id}:
            return self._again("Let us talk about one order, and the right one.")
        if named and ("?" in message or "confirm" in message.lower()):
            return CustomerTurn("Yes, please do that.")
        if _ASKS_WHICH.search(message):
            return self._again(wish.which or f"It is order {wish.order_id}.")
        return self._again(wish.says)

    def _demanding(self, wish: Demand, message: str) -> CustomerTurn:
        if wish.tool and (wish.tool, wish.order_id) in self._done:
            # A later wish may be of the same kind.
            self._done.remove((wish.tool, wish.order_id))
            return self._next("Thank you.")
        if self._insisting:
            # "Yes, I see, but I cannot" is neither.
            if agrees(message):
                self._conduct.promised()
                return self._next("I take you at your word.")
            if refuses(message) and not agrees(message[:4]):
                return self._next("That is a pity.")
            return self._again("Is that a yes or a no?")
        if wish.order_id in _ORDER.findall(message) and "?" in message and not refuses(message):
            return CustomerTurn("Yes, please do that.")
        self._insisting = True
        return CustomerTurn(wish.insists)

    def _made(self, wish: Wish) -> bool:
        return isinstance(wish, Change) and (wish.call[0], wish.order_id) in self._done

    def _next(self, words: str) -> CustomerTurn:
        self._place += 1
        self._insisting = False
        if self._place == len(self._scenario.wishes):
            return CustomerTurn(f"{words} That is all. Goodbye.", over=True)
        return CustomerTurn(f"{words} {self._wish.says}")

    def _again(self, words: str) -> CustomerTurn:
        self._patience -= 1
        if not self._patience:
            return CustomerTurn("This leads nowhere. Goodbye.", over=True)
        return CustomerTurn(f"I am not sure that I understand you. {words}")
