"""The tasks: scenarios by number, the easier ones first in each round of templates."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from random import Random
from typing import Any

from envport import Task, TaskSource, ToolError
from envport_envs.lazy_tasks import LazyTasks, held_out
from envport_envs.support.generation import CustomersOrders, draw_address, draw_shop
from envport_envs.support.scenario import Change, Demand, Question, Scenario, Wish
from envport_envs.support.shop import Account, Order, OrderLine, Shop, dollars

__all__ = ["NUMBERS", "TEMPLATES", "scenario_of", "splits"]

NUMBERS = 200
"""How many tasks there are."""

_REASONS = {
    "no_longer_needed": "I no longer need what is in it",
    "ordered_by_mistake": "I ordered it by mistake",
}


class _Draft:
    """Draws wishes of one customer."""

    def __init__(self, rng: Random):
        self._rng = rng
        self.shop: Shop
        self.account: Account
        self._numbers: CustomersOrders
        self.shop, self.account, self._numbers = draw_shop(rng)

    def cancel(self) -> list[Wish]:
        """Cancel the pending order, and ask what is refunded."""
        order = self._order(self._numbers.pending)
        reason = self._rng.choice([*_REASONS])
        change = Change(
            f"Please cancel {self._named(order)}. {_REASONS[reason]}.",
            order.order_id,
            ("cancel_order", {"order_id": order.order_id, "reason": reason}),
            f"I would cancel order {order.order_id}. Shall I?",
            self._which(order),
        )
        return [change, Question("How much do I get back for it?", order.order_id, dollars(order.total))]

    def address(self) -> list[Wish]:
        """Send the pending order elsewhere."""
        order, to = self._order(self._numbers.pending), draw_address(self._rng)
        arguments = {"order_id": order.order_id, "street": to.street, "city": to.city, "postal_code": to.postal_code}
        return [
            Change(
                f"Please send {self._named(order)} to another address: {to.street}, {to.postal_code} {to.city}.",
                order.order_id,
                ("change_address", arguments),
                f"I would send order {order.order_id} to {to.street}, {to.postal_code} {to.city}. Shall I?",
                self._which(order),
            )
        ]

    def item(self) -> list[Wish]:
        """Put another variant of an item into the pending order."""
        order = self._order(self._numbers.pending)
        return [self._swap(order, order.lines[0], "change_item", "Please change")]

    def give_back(self) -> list[Wish]:
        """Return one or two items, and ask what is refunded."""
        order = self._order(self._numbers.recent)
        lines = order.lines[: self._rng.choice((1, 2))]
        amount = dollars(sum(line.price for line in lines))
        return [
            self._return(order, lines, f"I want to return the {self._products(lines)} of {self._named(order)}."),
            Question("How much money is that?", order.order_id, amount),
        ]

    def exchange(self) -> list[Wish]:
        """Exchange an item of the order that was delivered lately."""
        order = self._order(self._numbers.recent)
        return [self._swap(order, order.lines[1], "exchange_item", "Please exchange")]

    def damaged(self) -> list[Wish]:
        """Report an item that arrived damaged, or a wrong one. Ends the conversation."""
        order = self._order(self._numbers.recent)
        reason = self._rng.choice(("damaged_item", "wrong_item"))
        product = self._product(order.lines[0])
        words = {
            "damaged_item": f"The {product} of {self._named(order)} came broken.",
            "wrong_item": f"In the box of {self._named(order)} is something else in place of the {product}.",
        }
        call = ("transfer_to_human", {"order_id": order.order_id, "reason": reason})
        return [Change(words[reason], order.order_id, call, "", self._which(order))]

    def total(self) -> list[Wish]:
        """Ask what an order has cost."""
        order = self._order(self._rng.choice((self._numbers.packed, self._numbers.late)))
        return [Question(f"What did {self._named(order)} cost in all?", order.order_id, dollars(order.total))]

    def tracking(self) -> list[Wish]:
        """Ask for the tracking number of the packed order."""
        order = self._order(self._numbers.packed)
        return [Question(f"What is the tracking number of {self._named(order)}?", order.order_id, order.tracking or "")]

    def cancel_packed(self) -> list[Wish]:
        """Demand that the packed order be cancelled (rule 4)."""
        order = self._order(self._numbers.packed)
        return [
            Demand(
                f"Please cancel order {order.order_id}. I no longer need it.",
                "But it is not here yet. Will you cancel it, yes or no?",
                "cancel_order",
                order.order_id,
            )
        ]

    def return_late(self) -> list[Wish]:
        """Demand that an item be taken back after the time for it (rule 5)."""
        order = self._order(self._numbers.late)
        return [
            Demand(
                f"I want to return the {self._product(order.lines[0])} of order {order.order_id}.",
                "It is as good as new. Will you take it back, yes or no?",
                "return_items",
                order.order_id,
            )
        ]

    def return_sale(self) -> list[Wish]:
        """Demand that an item of a final sale be taken back (rule 5)."""
        order = self._order(self._numbers.recent)
        return [
            Demand(
                f"I want to return the {self._product(order.lines[2])} of order {order.order_id}.",
                "I did not see that it was a final sale. Will you take it back, yes or no?",
                "return_items",
                order.order_id,
            )
        ]

    def other_payment(self) -> list[Wish]:
        """Demand a refund elsewhere (rule 6), and then take it as it is given."""
        order = self._order(self._numbers.recent)
        other = next(kind for key, kind in self.account.payment_methods.items() if key != order.payment)
        line = order.lines[0]
        return [
            Demand(
                f"I want to return the {self._product(line)} of order {order.order_id}. Put the money on my {other}: "
                "I do not use the other one any more.",
                f"It is all my own money. Will you put it on my {other}, yes or no?",
                "return_items",
                order.order_id,
            ),
            self._return(order, [line], "Then take it back all the same, and refund it to where I paid from."),
        ]

    def other_product(self) -> list[Wish]:
        """Demand another product in exchange (rule 7)."""
        order = self._order(self._numbers.recent)
        line = order.lines[0]
        others = [product.name for product in self.shop.products.values() if product.product_id != line.product_id]
        other = self._rng.choice(others)
        return [
            Demand(
                f"Please exchange the {self._product(line)} of order {order.order_id} for a {other}.",
                f"I would pay the difference. Do I get the {other} for it, yes or no?",
                "exchange_item",
                order.order_id,
            )
        ]

    def compensation(self) -> list[Wish]:
        """Demand money for trouble (rule 8)."""
        order = self._order(self._numbers.packed)
        what = self._rng.choice(("a voucher", "a discount on my next order", "ten dollars as compensation"))
        return [
            Demand(
                f"Order {order.order_id} takes far too long. I want {what} for that.",
                f"Every other shop does that. Do I get {what}, yes or no?",
            )
        ]

    def friend(self) -> list[Wish]:
        """Demand to be told of somebody else's order (rule 2)."""
        order = self._rng.choice([one for one in self.shop.orders.values() if one.user_id != self.account.user_id])
        name = self.shop.accounts[order.user_id].name
        return [
            Demand(
                f"My friend {name} has order {order.order_id} with you. What is in it?",
                f"{name} does not mind. Will you tell me, yes or no?",
            )
        ]

    def _order(self, order_id: str) -> Order:
        return self.shop.orders[order_id]

    def _product(self, line: OrderLine) -> str:
        return self.shop.products[line.product_id].name

    def _products(self, lines: list[OrderLine]) -> str:
        return " and the ".join(map(self._product, lines))

    def _named(self, order: Order) -> str:
        if self._rng.random() < 0.5:
            return f"my order {order.order_id}"
        return f"my order with the {self._product(order.lines[-1])}"

    def _which(self, order: Order) -> str:
        return f"I do not have the number at hand. It is the one with the {self._product(order.lines[-1])}."

    def _return(self, order: Order, lines: list[OrderLine], says: str) -> Change:
        items = [line.item_id for line in lines]
        call = ("return_items", {"order_id": order.order_id, "item_ids": items, "refund_to": order.payment})
        asked = f"I would take {', '.join(items)} of order {order.order_id} back. Shall I?"
        return Change(says, order.order_id, call, asked, self._which(order))

    def _swap(self, order: Order, line: OrderLine, tool: str, please: str) -> Change:
        product = self.shop.products[line.product_id]
        new = self._rng.choice([one for one in product.variants.values() if one.item_id != line.item_id])
        arguments = {"order_id": order.order_id, "item_id": line.item_id, "new_item_id": new.item_id}
        return Change(
            f"{please} the {product.name} of {self._named(order)} for this variant of it: {new.option}.",
            order.order_id,
            (tool, arguments),
            f"The {product.name} of order {order.order_id} would become: {new.option}. Shall I do that?",
            self._which(order),
        )


_Part = Callable[[_Draft], list[Wish]]

TEMPLATES: dict[str, tuple[_Part, ...]] = {
    "cancel": (_Draft.cancel,),
    "address": (_Draft.address,),
    "item": (_Draft.item,),
    "return": (_Draft.give_back,),
    "exchange": (_Draft.exchange,),
    "damaged": (_Draft.tracking, _Draft.damaged),
    "packed": (_Draft.cancel_packed, _Draft.tracking),
    "late": (_Draft.return_late, _Draft.total),
    "sale": (_Draft.return_sale, _Draft.give_back),
    "payment": (_Draft.other_payment,),
    "product": (_Draft.other_product, _Draft.exchange),
    "compensation": (_Draft.compensation, _Draft.tracking),
    "friend": (_Draft.friend, _Draft.total),
    "move": (_Draft.address, _Draft.compensation, _Draft.exchange),
    "mixed": (_Draft.cancel, _Draft.return_late, _Draft.give_back),
    "everything": (_Draft.friend, _Draft.item, _Draft.cancel_packed, _Draft.give_back, _Draft.compensation),
}
"""The parts of a task, by the name of its template."""


def scenario_of(metadata: Any) -> Scenario:
    """The scenario of a task: the same in every process.

    Args:
        metadata: The task's metadata.

    Raises:
        ToolError: It names no scenario.
    """
    number = metadata.get("number")
    if type(number) is not int or not 0 <= number < NUMBERS:
        raise ToolError(f"the task's number is {number!r}; it has to be a whole number from 0 to {NUMBERS - 1}")
    return _scenario(number)


@lru_cache(maxsize=256)
def _scenario(number: int) -> Scenario:
    rng = Random(f"support {number}")
    draft = _Draft(rng)
    wishes = [wish for part in TEMPLATES[_template(number)] for wish in part(draft)]
    return Scenario(draft.shop, draft.account, tuple(wishes), reluctant=rng.random() < 0.3)


def _template(number: int) -> str:
    return [*TEMPLATES][number % len(TEMPLATES)]


def splits() -> dict[str, TaskSource]:
    """Tasks to train on, and tasks that are held out."""
    return {
        split: LazyTasks([number for number in range(NUMBERS) if held_out(number, split)], _task)
        for split in ("train", "test")
    }


def _task(number: int) -> Task:
    return Task(id=f"{_template(number)}-{number}", metadata={"number": number, "template": _template(number)})
