"""The shop's database: products, accounts and orders, and what can be changed of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from datetime import date
from typing import Any, Literal

from envport import ToolError
from envport_envs.support.policy import TODAY

__all__ = [
    "Account",
    "CancelReason",
    "Order",
    "OrderLine",
    "Product",
    "ShippingAddress",
    "Shop",
    "TransferReason",
    "Variant",
    "days_since",
    "dollars",
]

CancelReason = Literal["no_longer_needed", "ordered_by_mistake"]
TransferReason = Literal["damaged_item", "wrong_item"]
OrderStatus = Literal["pending", "packed", "shipped", "delivered", "cancelled"]

_CHANGEABLE = ("pending", "packed")


@dataclass
class ShippingAddress:
    """Where something is sent to."""

    street: str
    city: str
    postal_code: str


@dataclass
class Variant:
    """A variant of a product; `price` is in cents."""

    item_id: str
    option: str
    price: int
    stock: int


@dataclass
class Product:
    """A product, with its variants by item."""

    product_id: str
    name: str
    final_sale: bool
    variants: dict[str, Variant]


@dataclass
class OrderLine:
    """An item of an order; `price` is in cents, and `state` what became of the item."""

    item_id: str
    product_id: str
    name: str
    price: int
    final_sale: bool
    state: Literal["ordered", "returned", "exchanged"] = "ordered"
    exchanged_for: str | None = None


@dataclass
class Order:
    """An order. Days are written as YYYY-MM-DD; refunds are pairs of a payment method and an amount in cents."""

    order_id: str
    user_id: str
    status: OrderStatus
    placed: str
    delivered: str | None
    tracking: str | None
    address: ShippingAddress
    payment: str
    lines: list[OrderLine]
    cancel_reason: str | None = None
    refunds: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])

    @property
    def total(self) -> int:
        """The sum of the prices, in cents."""
        return sum(line.price for line in self.lines)

    def line(self, item_id: str) -> OrderLine:
        """The line of an item that the customer still has or waits for.

        Raises:
            ToolError: There is no such item.
        """
        left = {line.item_id: line for line in self.lines if line.state == "ordered"}
        if item_id not in left:
            raise ToolError(f"order {self.order_id} has no item {_shown(item_id)}; its items are: {_listed(left)}")
        return left[item_id]

    def view(self) -> dict[str, Any]:
        """The order as an agent sees it."""
        own = asdict(self)
        lines = [{**asdict(line), "price": dollars(line.price)} for line in self.lines]
        refunds = [{"payment_method": method, "amount": dollars(amount)} for method, amount in self.refunds]
        return {**own, "lines": lines, "total": dollars(self.total), "refunds": refunds}


@dataclass
class Account:
    """A customer's account, with the payment methods by id."""

    user_id: str
    name: str
    email: str
    address: ShippingAddress
    payment_methods: dict[str, str]
    orders: list[str]


@dataclass
class Shop:
    """Everything that the customer service knows, and what it has done."""

    products: dict[str, Product]
    accounts: dict[str, Account]
    orders: dict[str, Order]
    transfers: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    def account(self, user_id: str) -> Account:
        """An account.

        Raises:
            ToolError: There is none with this id.
        """
        if (found := self.accounts.get(user_id)) is None:
            raise ToolError(f"there is no account {_shown(user_id)}; identify_customer tells the customer's user id")
        return found

    def order(self, order_id: str) -> Order:
        """An order.

        Raises:
            ToolError: There is none with this number.
        """
        if (found := self.orders.get(order_id)) is None:
            raise ToolError(
                f"there is no order {_shown(order_id)}; a number looks like W1234, and get_customer lists those of an "
                "account"
            )
        return found

    def product(self, product_id: str) -> Product:
        """A product.

        Raises:
            ToolError: There is none with this id.
        """
        if (found := self.products.get(product_id)) is None:
            raise ToolError(f"there is no product {_shown(product_id)}; the products are: {_listed(self.products)}")
        return found

    def variant(self, item_id: str) -> tuple[Product, Variant]:
        """The variant of an item, with its product.

        Raises:
            ToolError: There is none with this id.
        """
        for product in self.products.values():
            if (found := product.variants.get(item_id)) is not None:
                return product, found
        raise ToolError(f"there is no item {_shown(item_id)}; get_product lists the items of a product")

    def identify(self, email: str, postal_code: str) -> Account:
        """The account with this email and postal code.

        Raises:
            ToolError: There is none.
        """
        for account in self.accounts.values():
            if account.email == email.strip().lower() and account.address.postal_code == postal_code.strip():
                return account
        raise ToolError("no account has this email and postal code; give both as the customer told them")

    def cancel(self, order_id: str, reason: CancelReason) -> str:
        """Cancel an order that has not been shipped, and refund it."""
        order = self._with_status(order_id, _CHANGEABLE, "cancelled")
        order.status, order.cancel_reason = "cancelled", reason
        order.refunds.append((order.payment, order.total))
        for line in order.lines:
            self.variant(line.item_id)[1].stock += 1
        return f"Order {order_id} is cancelled. {dollars(order.total)} is refunded to {order.payment}."

    def change_address(self, order_id: str, address: ShippingAddress) -> str:
        """Send an order that has not been shipped to another address."""
        self._with_status(order_id, _CHANGEABLE, "sent to another address").address = address
        return f"Order {order_id} goes to {address.street}, {address.city}, {address.postal_code}."

    def change_item(self, order_id: str, item_id: str, new_item_id: str) -> str:
        """Put another item into an order that has not been shipped."""
        order = self._with_status(order_id, _CHANGEABLE, "changed")
        line = order.line(item_id)
        product, variant = self._taken(new_item_id, instead_of=item_id)
        self.variant(item_id)[1].stock += 1
        told = _difference(line.price, variant.price)
        line.item_id, line.product_id, line.price = new_item_id, product.product_id, variant.price
        line.name, line.final_sale = f"{product.name}, {variant.option}", product.final_sale
        return f"Order {order_id} has {line.name} in place of {item_id}. {told}"

    def return_items(self, order_id: str, item_ids: Iterable[str], refund_to: str) -> str:
        """Take items of a delivered order back, and refund them."""
        order = self._with_status(order_id, ("delivered",), "returned")
        methods = self.account(order.user_id).payment_methods
        if refund_to not in methods:
            raise ToolError(
                f"the customer has no payment method {_shown(refund_to)}; the methods are: {_listed(methods)}"
            )
        lines = [order.line(item) for item in dict.fromkeys(item_ids)]
        for line in lines:
            line.state = "returned"
        amount = sum(line.price for line in lines)
        order.refunds.append((refund_to, amount))
        items = _listed(line.item_id for line in lines)
        return f"Taken back from order {order_id}: {items}. {dollars(amount)} is refunded to {refund_to}."

    def exchange_item(self, order_id: str, item_id: str, new_item_id: str) -> str:
        """Send another item in place of one of a delivered order."""
        order = self._with_status(order_id, ("delivered",), "exchanged")
        line = order.line(item_id)
        product, variant = self._taken(new_item_id, instead_of=item_id)
        line.state, line.exchanged_for = "exchanged", new_item_id
        told = _difference(line.price, variant.price)
        return f"Item {item_id} of order {order_id} is exchanged for {product.name}, {variant.option}. {told}"

    def transfer(self, order_id: str, reason: TransferReason) -> str:
        """Hand the conversation over to a person."""
        self.order(order_id)
        self.transfers.append((order_id, reason))
        return "The conversation is handed over to a person."

    def _with_status(self, order_id: str, statuses: tuple[str, ...], done: str) -> Order:
        order = self.order(order_id)
        if order.status not in statuses:
            raise ToolError(
                f"order {order_id} is {order.status}; an order can be {done} while it is {' or '.join(statuses)}"
            )
        return order

    def _taken(self, item_id: str, instead_of: str) -> tuple[Product, Variant]:
        product, variant = self.variant(item_id)
        if item_id == instead_of:
            raise ToolError(f"item {item_id} cannot take the place of itself; give another item")
        if not variant.stock:
            stocked = [other.item_id for other in product.variants.values() if other.stock]
            raise ToolError(f"item {item_id} is out of stock; in stock of this product: {_listed(stocked)}")
        variant.stock -= 1
        return product, variant


def dollars(cents: int) -> str:
    """An amount as it is shown."""
    return f"${cents / 100:.2f}"


def days_since(day: str) -> int:
    """Days from a day, written as YYYY-MM-DD, until today."""
    return (date.fromisoformat(TODAY) - date.fromisoformat(day)).days


def _difference(old: int, new: int) -> str:
    if old == new:
        return "The price is the same."
    return f"{dollars(abs(new - old))} is {'charged' if new > old else 'refunded'}."


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:40]}...")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
