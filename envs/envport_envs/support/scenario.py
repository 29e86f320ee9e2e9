"""What a customer wants: the parts of a task."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from envport_envs.support.shop import Account, ShippingAddress, Shop

__all__ = ["Change", "Demand", "Question", "Scenario", "ShopCall", "Wish", "carry_out"]

ShopCall = tuple[str, Mapping[str, Any]]
"""A tool that changes the database, and its arguments."""


@dataclass(frozen=True)
class Change:
    """Something that the policy allows.

    Attributes:
        says: What the customer says.
        order_id: The order.
        call: What has to be done.
        asked: How an agent asks for consent.
        which: What the customer says of the order when asked which it is; empty to name its number.
    """

    says: str
    order_id: str
    call: ShopCall
    asked: str
    which: str = ""


@dataclass(frozen=True)
class Question:
    """Something that the customer wants to know.

    Attributes:
        says: What the customer says.
        order_id: The order that has the answer.
        answer: The answer: an amount such as `$12.30`, or a tracking number.
    """

    says: str
    order_id: str
    answer: str


@dataclass(frozen=True)
class Demand:
    """Something that the policy forbids.

    Attributes:
        says: What the customer says.
        insists: How the customer insists; a question that is answered by yes or no.
        tool: The tool that would do it; empty if there is none.
        order_id: The order that it is about.
    """

    says: str
    insists: str
    tool: str = ""
    order_id: str = ""


Wish = Change | Question | Demand


@dataclass(frozen=True)
class Scenario:
    """A task.

    Attributes:
        shop: The database as it is at first. Do not modify it.
        account: The customer's account.
        wishes: What the customer wants, one after another.
        reluctant: Whether the customer tells the postal code only when asked again.
    """

    shop: Shop
    account: Account
    wishes: tuple[Wish, ...]
    reluctant: bool = False

    @cached_property
    def expected(self) -> Shop:
        """The database as it has to be in the end. Do not modify it."""
        shop = copy.deepcopy(self.shop)
        for wish in self.wishes:
            if isinstance(wish, Change):
                carry_out(shop, wish.call)
        return shop


def carry_out(shop: Shop, call: ShopCall) -> str:
    """Change the database as a tool does.

    Args:
        shop: The database.
        call: The tool and its arguments.

    Raises:
        ToolError: This cannot be done.
    """
    tool, arguments = call
    if tool == "cancel_order":
        return shop.cancel(**arguments)
    if tool == "change_address":
        order_id, *address = (arguments[name] for name in ("order_id", "street", "city", "postal_code"))
        return shop.change_address(order_id, ShippingAddress(*address))
    if tool == "change_item":
        return shop.change_item(**arguments)
    if tool == "return_items":
        return shop.return_items(**arguments)
    if tool == "exchange_item":
        return shop.exchange_item(**arguments)
    return shop.transfer(**arguments)
