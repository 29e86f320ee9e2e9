"""The generated databases. Imports nothing but the standard library, because the process of queries starts with it."""

from __future__ import annotations

import sqlite3
from datetime import date, timedelta
from random import Random

__all__ = ["CATEGORIES", "COUNTRIES", "SCHEMA", "STATUSES", "YEARS", "database"]

SCHEMA = """\
CREATE TABLE customers (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, country TEXT NOT NULL,
    segment TEXT,                 -- 'consumer' or 'business'; NULL: not known
    signed_up TEXT NOT NULL       -- YYYY-MM-DD, as all days
);
CREATE TABLE products (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, category TEXT NOT NULL,
    price REAL NOT NULL,          -- today's price
    weight_grams INTEGER,         -- NULL: not known
    discontinued_on TEXT          -- NULL: still sold
);
CREATE TABLE orders (
    id INTEGER PRIMARY KEY,
    customer_id INTEGER REFERENCES customers(id),  -- NULL: a guest
    ordered_on TEXT NOT NULL,
    status TEXT NOT NULL          -- 'open', 'shipped', 'delivered' or 'cancelled'
);
CREATE TABLE order_items (
    order_id INTEGER NOT NULL REFERENCES orders(id),
    product_id INTEGER NOT NULL REFERENCES products(id),
    quantity INTEGER NOT NULL,
    unit_price REAL NOT NULL,     -- the price at that time
    discount INTEGER,             -- percent; NULL: none
    PRIMARY KEY (order_id, product_id)
);
CREATE TABLE payments (
    id INTEGER PRIMARY KEY, order_id INTEGER NOT NULL REFERENCES orders(id),
    paid_on TEXT,                 -- NULL: not yet
    method TEXT                   -- 'card', 'transfer' or 'cash'; NULL: not known
);
"""
"""The tables of every database."""

COUNTRIES = ("Austria", "Brazil", "Canada", "Denmark", "Estonia", "France")
CATEGORIES = ("books", "garden", "kitchen", "music", "toys")
STATUSES = ("open", "shipped", "delivered", "cancelled")
YEARS = (2023, 2024, 2025)

_FIRST = ("Ana", "Bo", "Cem", "Dora", "Emil", "Fay", "Gil", "Hana", "Ivo", "Jun", "Kim", "Leo")
_LAST = ("Abel", "Bauer", "Costa", "Dahl", "Evans", "Fabre", "Garcia", "Hoang", "Ito", "Jensen")
_THINGS = ("basket", "box", "lamp", "pot", "rack", "set", "stand", "tray")
_COLOURS = ("amber", "blue", "coral", "grey", "olive", "teal", "white")
_CUSTOMERS, _PRODUCTS, _ORDERS = 50, 24, 260
_ProductRow = tuple[int, str, str, float, int | None, str | None]

_FIRST_DAY = date(YEARS[0], 1, 1)
_DAYS = (date(YEARS[-1], 12, 31) - _FIRST_DAY).days


def database(number: int) -> sqlite3.Connection:
    """The database of a task, in memory: the same in every process."""
    rng = Random(f"sqlite {number}")
    connection = sqlite3.connect(":memory:", check_same_thread=False)
    connection.executescript(SCHEMA)
    products = [_product(rng, key, name) for key, name in enumerate(_names(rng, _COLOURS, _THINGS, _PRODUCTS), 1)]
    customers = [_customer(rng, key, name) for key, name in enumerate(_names(rng, _FIRST, _LAST, _CUSTOMERS), 1)]
    connection.executemany("INSERT INTO products VALUES (?, ?, ?, ?, ?, ?)", products)
    connection.executemany("INSERT INTO customers VALUES (?, ?, ?, ?, ?)", customers)
    _add_orders(rng, connection, products)
    connection.commit()
    return connection


def _names(rng: Random, first: tuple[str, ...], last: tuple[str, ...], number: int) -> list[str]:
    return rng.sample([f"{one} {other}" for one in first for other in last], number)


def _product(rng: Random, key: int, name: str) -> _ProductRow:
    gone = _day(rng, 400) if rng.random() < 0.2 else None
    weight = rng.randint(1, 60) * 50 if rng.random() < 0.75 else None
    return key, name, rng.choice(CATEGORIES), rng.randint(300, 15_000) / 100, weight, gone


def _customer(rng: Random, key: int, name: str) -> tuple[int, str, str, str | None, str]:
    return key, name, rng.choice(COUNTRIES), rng.choice(("consumer", "consumer", "business", None)), _day(rng, 0)


def _day(rng: Random, after: int) -> str:
    return str(_FIRST_DAY + timedelta(rng.randint(after, _DAYS)))


def _add_orders(rng: Random, connection: sqlite3.Connection, products: list[_ProductRow]) -> None:
    # Some customers have no order.
    buyers = rng.sample(range(1, _CUSTOMERS + 1), _CUSTOMERS - 8)
    for key in range(1, _ORDERS + 1):
        day = _day(rng, 0)
        buyer = rng.choice(buyers) if rng.random() < 0.92 else None
        status = rng.choices(STATUSES, (2, 3, 9, 2))[0]
        connection.execute("INSERT INTO orders VALUES (?, ?, ?, ?)", (key, buyer, day, status))
        for product in rng.sample(products, rng.choices((1, 2, 3, 4), (4, 3, 2, 1))[0]):
            price = round(product[3] * rng.choice((0.8, 0.9, 1, 1, 1.1)), 2)
            discount = rng.choice((5, 10, 20)) if rng.random() < 0.3 else None
            connection.execute(
                "INSERT INTO order_items VALUES (?, ?, ?, ?, ?)", (key, product[0], rng.randint(1, 5), price, discount)
            )
        if rng.random() < 0.85:
            paid = str(date.fromisoformat(day) + timedelta(rng.randint(0, 40))) if rng.random() < 0.85 else None
            method = rng.choice(("card", "card", "transfer", "cash", None))
            connection.execute("INSERT INTO payments (order_id, paid_on, method) VALUES (?, ?, ?)", (key, paid, method))
