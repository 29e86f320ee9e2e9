"""Making a shop from a random generator."""

from __future__ import annotations

from datetime import date, timedelta
from random import Random
from typing import NamedTuple

from envport_envs.support.policy import RETURN_DAYS, TODAY
from envport_envs.support.shop import Account, Order, OrderLine, OrderStatus, Product, ShippingAddress, Shop, Variant

__all__ = ["CustomersOrders", "draw_address", "draw_shop"]

_FIRST = ("Ada", "Ben", "Chloé", "Dev", "Elif", "Femi", "Grace", "Hugo", "Ines", "Jonas", "Kaya", "Lin")
_LAST = ("Okafor", "Meyer", "Sørensen", "Iyer", "Rossi", "Novak", "Tanaka", "Silva", "Haddad", "Clarke")
_STREETS = ("Mill Lane", "Harbour Street", "Orchard Road", "Station Road", "Elm Avenue", "King Street")
_CITIES = ("Ashford", "Brookfield", "Carlow", "Denton", "Everly", "Fairview")
_METHODS = ("credit card", "bank account", "debit card")
_CATALOGUE = {
    "desk lamp": ("black", "white", "brass"),
    "kettle": ("1 litre", "1.5 litres", "2 litres"),
    "wool blanket": ("grey", "green", "red"),
    "bookshelf": ("oak", "walnut", "white"),
    "tea set": ("4 cups", "6 cups", "8 cups"),
    "wall clock": ("small", "medium", "large"),
    "bath towel": ("blue", "beige", "yellow"),
    "knife block": ("5 knives", "7 knives", "9 knives"),
    "floor rug": ("1 metre", "2 metres", "3 metres"),
    "coat rack": ("pine", "steel", "copper"),
}
# In every catalogue these are sold without returns.
_FINAL_SALE = ("garden bench", "candle box")
_FINAL_SALE_OPTIONS = ("plain", "painted", "carved")
_OTHERS = 5
_OLDEST_RETURN = RETURN_DAYS - 2


class CustomersOrders(NamedTuple):
    """The numbers of the orders of the customer who calls, by what can be done with them."""

    pending: str
    packed: str
    recent: str
    late: str


def draw_shop(rng: Random) -> tuple[Shop, Account, CustomersOrders]:
    """A shop, the account of the customer who calls, and that customer's orders.

    The order that was delivered lately has two items that can be returned, and one of a final sale. All items of a
    customer's orders are of different products.
    """
    shop = Shop(_products(rng), {}, {})
    names = rng.sample([f"{first} {last}" for first in _FIRST for last in _LAST], _OTHERS + 1)
    accounts = [_account(rng, shop, name) for name in names]
    caller = accounts[0]
    normal = rng.sample([product for product in shop.products.values() if not product.final_sale], 9)
    sale = rng.choice([product for product in shop.products.values() if product.final_sale])
    orders = CustomersOrders(
        _order(rng, shop, caller, "pending", 2, normal[:2]),
        _order(rng, shop, caller, "packed", 4, normal[2:4]),
        _order(rng, shop, caller, "delivered", rng.randint(6, _OLDEST_RETURN), [*normal[4:6], sale]),
        _order(rng, shop, caller, "delivered", rng.randint(RETURN_DAYS + 5, 90), normal[6:8]),
    )
    for account in accounts[1:]:
        for status in rng.sample(("pending", "packed", "shipped", "delivered"), 2):
            chosen = rng.sample([*shop.products.values()], 2)
            _order(rng, shop, account, status, rng.randint(8, _OLDEST_RETURN), chosen)
    rng.shuffle(caller.orders)
    return shop, caller, orders


def draw_address(rng: Random) -> ShippingAddress:
    """An address."""
    street = f"{rng.randint(1, 180)} {rng.choice(_STREETS)}"
    return ShippingAddress(street, rng.choice(_CITIES), str(rng.randint(10_000, 99_999)))


def _products(rng: Random) -> dict[str, Product]:
    products: dict[str, Product] = {}
    numbers = iter(rng.sample(range(1000, 10_000), 60))
    options = {**_CATALOGUE, **dict.fromkeys(_FINAL_SALE, _FINAL_SALE_OPTIONS)}
    for name, choices in options.items():
        price = rng.randint(1_200, 12_000)
        product = Product(f"P{next(numbers)}", name, name in _FINAL_SALE, {})
        for place, option in enumerate(choices):
            item = f"I{next(numbers)}"
            product.variants[item] = Variant(item, option, price + place * rng.randint(150, 900), rng.randint(3, 9))
        products[product.product_id] = product
    return products


def _account(rng: Random, shop: Shop, name: str) -> Account:
    first, _, last = name.lower().partition(" ")
    email = f"{first}.{last}@example.com".replace("é", "e").replace("ø", "o")
    methods = {f"pay_{rng.randint(10_000, 99_999)}": kind for kind in rng.sample(_METHODS, 2)}
    account = Account(
        f"u_{last.replace('ø', 'o')}_{rng.randint(100, 999)}", name, email, draw_address(rng), methods, []
    )
    shop.accounts[account.user_id] = account
    return account


def _order(rng: Random, shop: Shop, account: Account, status: OrderStatus, days: int, products: list[Product]) -> str:
    order_id = _number(rng, shop)
    placed = date.fromisoformat(TODAY) - timedelta(days)
    chosen = [(product, rng.choice([*product.variants.values()])) for product in products]
    lines = [
        OrderLine(
            variant.item_id, product.product_id, f"{product.name}, {variant.option}", variant.price, product.final_sale
        )
        for product, variant in chosen
    ]
    delivered = str(placed + timedelta(rng.randint(2, 4))) if status == "delivered" else None
    tracking = f"LF{rng.randint(100_000, 999_999)}" if status in ("packed", "shipped", "delivered") else None
    shop.orders[order_id] = Order(
        order_id,
        account.user_id,
        status,
        str(placed),
        delivered,
        tracking,
        account.address,
        rng.choice([*account.payment_methods]),
        lines,
    )
    account.orders.append(order_id)
    return order_id


def _number(rng: Random, shop: Shop) -> str:
    while (number := f"W{rng.randint(1000, 9999)}") in shop.orders:
        pass
    return number
