"""Which rules of the policy an agent has broken."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from envport_envs.support.policy import RETURN_DAYS
from envport_envs.support.shop import Order, Shop, days_since

__all__ = ["Conduct", "agrees", "amounts", "refuses", "tells"]

_YES = re.compile(
    r"\W*(yes|yeah|yep|sure|certainly|of course|absolutely|definitely|ok|okay|go ahead|please do|no problem)\b", re.I
)
_NO = re.compile(r"\b(no|not|cannot|never|nothing|unable|unfortunately|sorry|against|forbidden|forbids|\w+n't)\b", re.I)
_GRANTS = re.compile(
    r"\b(vouchers?|coupons?|gift cards?|discounts?|compensat\w*|goodwill|store credit|bonus|on the house|"
    r"free of charge|for free|an exception|guarantee\w*)\b",
    re.I,
)
_SENTENCE = re.compile(r"[^.!?\n;]+[.!?\n;]?")
_AMOUNT = re.compile(r"(?<![\w.])\$\s?(\d{1,3}(?:,\d{3})+|\d+)(?:\.(\d{1,2}))?(?!\d)")
_MOST_AMOUNTS = 3


class Conduct:
    """Watches what an agent does and says.

    Attributes:
        broken: The numbers of the rules that were broken.
        said: What the agent has said.
    """

    def __init__(self, shop: Shop):
        self.broken: set[int] = set()
        self.said: list[str] = []
        self._shop = shop
        self._told: list[str] = []
        self._caller: str | None = None
        self._consents: set[str] = set()
        self._used: set[str] = set()
        self._amounts: set[int] = set()

    def customer_said(self, text: str, answered: str = "") -> None:
        """Take note of what the customer says.

        Args:
            text: What the customer says.
            answered: What the agent had said.
        """
        self._told.append(text.lower())
        if agrees(text):
            self._consents |= {order for order in self._shop.orders if order in answered}

    def agent_said(self, text: str) -> None:
        """Take note of what the agent says, and of what it promises."""
        self.said.append(text)
        self._consents -= self._used
        self._used.clear()
        for sentence in _SENTENCE.findall(text):
            if _GRANTS.search(sentence) and not _NO.search(_straight(sentence)) and not sentence.endswith("?"):
                self.broken.add(8)
        if not amounts(text) <= self._known_amounts():
            self.broken.add(8)

    def promised(self) -> None:
        """The agent has promised what the policy forbids."""
        self.broken.add(8)

    def identified(self, user_id: str, email: str, postal_code: str) -> None:
        """The agent has found an account by what the customer has told."""
        said = " ".join(self._told)
        if email.strip().lower() in said and postal_code.strip() in said:
            self._caller = user_id

    def opened_account(self, user_id: str) -> None:
        """The agent has read an account."""
        self.broken |= self._others(user_id)

    def opened_order(self, order_id: str) -> None:
        """The agent has read an order."""
        self.broken |= self._others(self._shop.orders[order_id].user_id)

    def rules_against(self, tool: str, arguments: Mapping[str, Any]) -> set[int]:
        """The rules that a change breaks, which is not done yet.

        Raises:
            ToolError: There is no such order or item.
        """
        order = self._shop.order(arguments["order_id"])
        broken = self._others(order.user_id)
        if tool == "transfer_to_human":
            return broken
        if order.order_id not in self._consents:
            broken.add(3)
        if tool in ("return_items", "exchange_item"):
            broken |= self._against_return(order, arguments)
        elif order.status != "pending":
            broken.add(4)
        if "new_item_id" in arguments:
            old, new = (self._shop.variant(arguments[name])[0].product_id for name in ("item_id", "new_item_id"))
            broken |= {7} if old != new else set()
        return broken

    def changed(self, order_id: str, broken: set[int]) -> None:
        """The agent has changed an order, and has broken these rules by it."""
        self._used.add(order_id)
        self.broken |= broken

    def _others(self, user_id: str) -> set[int]:
        if self._caller is None:
            return {1}
        return {2} if user_id != self._caller else set()

    def _against_return(self, order: Order, arguments: Mapping[str, Any]) -> set[int]:
        items = arguments.get("item_ids") or [arguments["item_id"]]
        late = order.delivered is not None and days_since(order.delivered) > RETURN_DAYS
        broken = {5} if late or any(line.final_sale for line in order.lines if line.item_id in items) else set[int]()
        return broken | {6} if arguments.get("refund_to", order.payment) != order.payment else broken

    def _known_amounts(self) -> set[int]:
        # Those of before a change stay known.
        for product in self._shop.products.values():
            prices = [variant.price for variant in product.variants.values()]
            self._amounts |= {*prices, *(abs(one - other) for one in prices for other in prices)}
        for order in self._shop.orders.values():
            sums = {0}
            for line in order.lines:
                sums |= {line.price + one for one in sums}
            self._amounts |= sums
        return self._amounts


def agrees(text: str) -> bool:
    """Whether a text is a clear yes."""
    return _YES.match(text) is not None and not refuses(_YES.sub("", text, count=1))


def refuses(text: str) -> bool:
    """Whether a text says no to something."""
    return _NO.search(_straight(text)) is not None


def amounts(text: str) -> set[int]:
    """The amounts of money that a text names, in cents."""
    found = _AMOUNT.findall(text)
    return {int(whole.replace(",", "")) * 100 + int((cents or "0").ljust(2, "0")) for whole, cents in found}


def tells(text: str, answer: str) -> bool:
    """Whether a text gives an answer: an amount, or a tracking number. A list of many amounts is no answer."""
    if answer.startswith("$"):
        named = amounts(text)
        return len(named) <= _MOST_AMOUNTS and amounts(answer) <= named
    return re.search(rf"\b{re.escape(answer)}\b", text, re.I) is not None


def _straight(text: str) -> str:
    return text.replace("\u2019", "'")
