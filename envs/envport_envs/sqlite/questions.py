"""Questions, each with the query that answers it and queries that fall into its trap."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Literal

from envport_envs.sqlite.data import CATEGORIES, COUNTRIES, STATUSES, YEARS

__all__ = ["TEMPLATES", "AnswerKind", "SqlQuestion"]

AnswerKind = Literal["whole number", "number", "text", "list"]

_REVENUE = "i.quantity * i.unit_price * (100 - COALESCE(i.discount, 0)) / 100.0"
_WITHOUT_NULLS = "i.quantity * i.unit_price * (100 - i.discount) / 100.0"
_UNDISCOUNTED = "i.quantity * i.unit_price"


@dataclass(frozen=True)
class SqlQuestion:
    """A question.

    Attributes:
        text: What is asked.
        sql: The query whose first column is the answer: one row, or one row for each item of a list.
        kind: What the answer is.
        wrong: Queries that are easily taken for the right one. Their results have to be others.
        level: From 1 to 5.
        items: How many items a list has.
    """

    text: str
    sql: str
    kind: AnswerKind
    wrong: tuple[str, ...] = ()
    level: int = 1
    items: int = 1


Draw = Callable[[Random], SqlQuestion]


def _where(rng: Random) -> tuple[str, str, int]:
    return rng.choice(COUNTRIES), rng.choice(CATEGORIES), rng.choice(YEARS)


# 1: one table


def customers_of_country(rng: Random) -> SqlQuestion:
    country, _, year = _where(rng)
    day = f"{year}-{rng.randint(1, 12):02}-01"
    rest = f"FROM customers WHERE country = '{country}' AND signed_up < '{day}'"
    return SqlQuestion(
        f"How many customers of {country} had signed up before {day}?", f"SELECT COUNT(*) {rest}", "whole number"
    )


def orders_of_year(rng: Random) -> SqlQuestion:
    status, year = rng.choice(STATUSES), rng.choice(YEARS)
    return SqlQuestion(
        f"How many orders of {year} have the status {status!r}?",
        f"SELECT COUNT(*) FROM orders WHERE status = '{status}' AND ordered_on LIKE '{year}-%'",
        "whole number",
    )


def cheapest_sold(rng: Random) -> SqlQuestion:
    least = rng.randrange(5, 140)
    rest = f"FROM products WHERE price > {least}"
    return SqlQuestion(
        f"Of the products that are still sold, what is the lowest price of today above {least}?",
        f"SELECT MIN(price) {rest} AND discontinued_on IS NULL",
        "number",
        (f"SELECT MIN(price) {rest}", f"SELECT MIN(price) {rest} AND discontinued_on IS NOT NULL"),
    )


def mean_weight(rng: Random) -> SqlQuestion:
    most = rng.randrange(40, 150, 5)
    rest = f"FROM products WHERE price < {most}"
    return SqlQuestion(
        f"What is the mean weight in grams of the products with a price of today below {most}, if products of unknown "
        "weight count as 0?",
        f"SELECT AVG(COALESCE(weight_grams, 0)) {rest}",
        "number",
        (f"SELECT AVG(weight_grams) {rest}",),
        level=2,
    )


# 2: joins


def revenue_of_country(rng: Random) -> SqlQuestion:
    country, _, year = _where(rng)
    rest = (
        "FROM order_items i JOIN orders o ON o.id = i.order_id JOIN customers c ON c.id = o.customer_id "
        f"WHERE c.country = '{country}' AND o.ordered_on LIKE '{year}-%' AND o.status <> 'cancelled'"
    )
    return SqlQuestion(
        f"What is the revenue of the orders of {year} that are not cancelled, by customers of {country}?",
        f"SELECT SUM({_REVENUE}) {rest}",
        "number",
        (f"SELECT SUM({_WITHOUT_NULLS}) {rest}", f"SELECT SUM({_UNDISCOUNTED}) {rest}"),
        level=2,
    )


def buyers_of_category(rng: Random) -> SqlQuestion:
    _, category, year = _where(rng)
    rest = (
        "FROM orders o JOIN order_items i ON i.order_id = o.id JOIN products p ON p.id = i.product_id "
        f"WHERE p.category = '{category}' AND o.ordered_on LIKE '{year}-%'"
    )
    return SqlQuestion(
        f"How many customers (guests are none) ordered something of the category {category} in {year}?",
        f"SELECT COUNT(DISTINCT o.customer_id) {rest}",
        "whole number",
        (f"SELECT COUNT(*) {rest}", f"SELECT COUNT(o.customer_id) {rest}"),
        level=2,
    )


def most_sold(rng: Random) -> SqlQuestion:
    country, _, _ = _where(rng)
    ranked = (
        "SELECT p.name, RANK() OVER (ORDER BY SUM(i.quantity) DESC) AS place FROM order_items i JOIN orders o "
        "ON o.id = i.order_id JOIN customers c ON c.id = o.customer_id JOIN products p ON p.id = i.product_id "
        f"WHERE c.country = '{country}' GROUP BY p.id"
    )
    return SqlQuestion(
        f"Of which product did customers of {country} order the most pieces?",
        f"SELECT name FROM ({ranked}) WHERE place = 1",
        "text",
        level=2,
    )


def mean_pieces(rng: Random) -> SqlQuestion:
    status, year = rng.choice(STATUSES), rng.choice(YEARS)
    rest = (
        "FROM orders o JOIN order_items i ON i.order_id = o.id "
        f"WHERE o.status = '{status}' AND o.ordered_on LIKE '{year}-%'"
    )
    return SqlQuestion(
        f"How many pieces (the sum of the quantities) has an order of {year} with the status {status!r} on average?",
        f"SELECT SUM(i.quantity) * 1.0 / COUNT(DISTINCT o.id) {rest}",
        "number",
        (f"SELECT AVG(i.quantity) {rest}", f"SELECT SUM(i.quantity) / COUNT(DISTINCT o.id) {rest}"),
        level=2,
    )


# 3: what is not there


def never_bought(rng: Random) -> SqlQuestion:
    country, category, _ = _where(rng)
    bought = (
        "SELECT o.customer_id FROM orders o JOIN order_items i ON i.order_id = o.id JOIN products p "
        f"ON p.id = i.product_id WHERE p.category = '{category}'"
    )
    counted = f"SELECT COUNT(*) FROM customers c WHERE c.country = '{country}' AND"
    return SqlQuestion(
        f"How many customers of {country} have never ordered anything of the category {category}?",
        f"{counted} NOT EXISTS ({bought} AND o.customer_id = c.id)",
        "whole number",
        (
            f"{counted} c.id NOT IN ({bought})",
            f"{counted} NOT EXISTS (SELECT 1 FROM orders o WHERE o.customer_id = c.id)",
        ),
        level=3,
    )


def not_by_method(rng: Random) -> SqlQuestion:
    method, year = rng.choice(("card", "transfer", "cash")), rng.choice(YEARS)
    rest = f"FROM orders o JOIN payments y ON y.order_id = o.id WHERE o.ordered_on LIKE '{year}-%'"
    return SqlQuestion(
        f"How many payments of orders of {year} are not known to be by {method}? Those of an unknown method count too.",
        f"SELECT COUNT(*) {rest} AND y.method IS NOT '{method}'",
        "whole number",
        (f"SELECT COUNT(*) {rest} AND y.method <> '{method}'",),
        level=3,
    )


def orders_per_customer(rng: Random) -> SqlQuestion:
    country, _, year = _where(rng)
    joined = f"customers c {{}} JOIN orders o ON o.customer_id = c.id AND o.ordered_on LIKE '{year}-%'"
    rest = f"WHERE c.country = '{country}'"
    return SqlQuestion(
        f"How many orders of {year} has a customer of {country} on average? Customers without any count as 0.",
        f"SELECT COUNT(o.id) * 1.0 / COUNT(DISTINCT c.id) FROM {joined.format('LEFT')} {rest}",
        "number",
        (
            f"SELECT COUNT(o.id) * 1.0 / COUNT(DISTINCT c.id) FROM {joined.format('')} {rest}",
            f"SELECT COUNT(*) * 1.0 / COUNT(DISTINCT c.id) FROM {joined.format('LEFT')} {rest}",
        ),
        level=3,
    )


def unpaid(rng: Random) -> SqlQuestion:
    status, year = rng.choice(STATUSES), rng.choice(YEARS)
    rest = f"o.status = '{status}' AND o.ordered_on LIKE '{year}-%'"
    paid = "SELECT 1 FROM payments y WHERE y.order_id = o.id AND y.paid_on IS NOT NULL"
    return SqlQuestion(
        f"How many orders of {year} with the status {status!r} have not been paid: have no payment, or one that is not "
        "made yet?",
        f"SELECT COUNT(*) FROM orders o WHERE {rest} AND NOT EXISTS ({paid})",
        "whole number",
        (
            f"SELECT COUNT(*) FROM orders o JOIN payments y ON y.order_id = o.id WHERE {rest} AND y.paid_on IS NULL",
            f"SELECT COUNT(*) FROM orders o WHERE {rest} AND o.id NOT IN (SELECT order_id FROM payments)",
        ),
        level=3,
    )


# 4: days


def days_to_pay(rng: Random) -> SqlQuestion:
    year, month = rng.choice(YEARS), rng.randint(1, 10)
    begin, end = f"{year}-{month:02}-01", f"{year}-{month + 3:02}-01" if month < 10 else f"{year + 1}-01-01"
    rest = "FROM orders o JOIN payments y ON y.order_id = o.id WHERE y.paid_on IS NOT NULL AND"
    days = "AVG(julianday(y.paid_on) - julianday(o.ordered_on))"
    return SqlQuestion(
        f"Of the orders from {begin} to the day before {end} that have been paid: how many days after the order was "
        "the payment made, on average?",
        f"SELECT {days} {rest} o.ordered_on >= '{begin}' AND o.ordered_on < '{end}'",
        "number",
        (f"SELECT {days} {rest} y.paid_on >= '{begin}' AND y.paid_on < '{end}'",),
        level=4,
    )


def best_month(rng: Random) -> SqlQuestion:
    country, _, year = _where(rng)
    ranked = (
        "SELECT substr(o.ordered_on, 1, 7) AS month, RANK() OVER (ORDER BY COUNT(*) DESC) AS place FROM orders o "
        f"JOIN customers c ON c.id = o.customer_id WHERE c.country = '{country}' AND o.ordered_on LIKE '{year}-%' "
        "GROUP BY month"
    )
    return SqlQuestion(
        f"In which month of {year} did customers of {country} order most often? Write it as YYYY-MM.",
        f"SELECT month FROM ({ranked}) WHERE place = 1",
        "text",
        level=4,
    )


def soon_after_signing_up(rng: Random) -> SqlQuestion:
    days, year = rng.choice((60, 90, 120, 180)), rng.choice(YEARS)
    rest = "FROM customers c JOIN orders o ON o.customer_id = c.id AND julianday(o.ordered_on) - julianday(c.signed_up)"
    return SqlQuestion(
        f"How many customers who signed up in {year} ordered on the day of signing up or in the {days} days after it? "
        "Some orders are older than the sign-up; these do not count.",
        f"SELECT COUNT(DISTINCT c.id) {rest} BETWEEN 0 AND {days} WHERE c.signed_up LIKE '{year}-%'",
        "whole number",
        (
            f"SELECT COUNT(DISTINCT c.id) {rest} <= {days} WHERE c.signed_up LIKE '{year}-%'",
            f"SELECT COUNT(*) {rest} BETWEEN 0 AND {days} WHERE c.signed_up LIKE '{year}-%'",
        ),
        level=4,
    )


def weekday(rng: Random) -> SqlQuestion:
    _, category, year = _where(rng)
    days = "'Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'"
    cases = " ".join(f"WHEN '{at}' THEN {day}" for at, day in enumerate(days.split(", ")))
    ranked = (
        "SELECT strftime('%w', o.ordered_on) AS day, RANK() OVER (ORDER BY SUM(i.quantity) DESC) AS place FROM orders "
        "o JOIN order_items i ON i.order_id = o.id JOIN products p ON p.id = i.product_id "
        f"WHERE p.category = '{category}' AND o.ordered_on LIKE '{year}-%' GROUP BY day"
    )
    return SqlQuestion(
        f"On which day of the week were the most pieces of the category {category} ordered in {year}? Write its "
        "English name, such as Monday.",
        f"SELECT CASE day {cases} END FROM ({ranked}) WHERE place = 1",
        "text",
        level=4,
    )


# 5: windows


def longest_pause(rng: Random) -> SqlQuestion:
    country, _, _ = _where(rng)
    gaps = "julianday(o.ordered_on) - julianday(LAG(o.ordered_on) OVER (PARTITION BY {} ORDER BY o.ordered_on, o.id))"
    rest = f"AS gap FROM orders o JOIN customers c ON c.id = o.customer_id WHERE c.country = '{country}'"
    return SqlQuestion(
        f"What is the longest time, in days, between one order of a customer of {country} and the next order of the "
        "same customer?",
        f"SELECT CAST(MAX(gap) AS INTEGER) FROM (SELECT {gaps.format('c.id')} {rest})",
        "whole number",
        (f"SELECT CAST(MAX(gap) AS INTEGER) FROM (SELECT {gaps.format('1')} {rest})",),
        level=5,
    )


def rising_customers(rng: Random) -> SqlQuestion:
    status = rng.choice(("cancelled", "open", "shipped"))
    worth = (
        f"SELECT o.customer_id, o.ordered_on, o.id, SUM({_REVENUE}) AS worth FROM orders o JOIN order_items i ON "
        + (f"i.order_id = o.id WHERE o.customer_id IS NOT NULL AND o.status <> '{status}' GROUP BY o.id")
    )
    placed = (
        "SELECT customer_id, worth, ROW_NUMBER() OVER (PARTITION BY customer_id ORDER BY ordered_on, id) AS place "
        f"FROM ({worth})"
    )
    counted = f"WITH placed AS ({placed}) SELECT COUNT(*) FROM placed a JOIN placed b ON b.customer_id = a.customer_id"
    return SqlQuestion(
        f"Leave out guests and orders with the status {status!r}. How many customers had a second order with a higher "
        "revenue than their first? Of orders of the same day, the one with the lower id is the earlier one.",
        f"{counted} AND a.place = 1 AND b.place = 2 WHERE b.worth > a.worth",
        "whole number",
        (f"{counted} AND b.place = a.place + 1 WHERE b.worth > a.worth",),
        level=5,
    )


def passing_day(rng: Random) -> SqlQuestion:
    year, most = rng.choice(YEARS), rng.choice((2_000, 4_000, 6_000, 8_000))
    days = (
        f"SELECT o.ordered_on AS day, SUM({{}}) AS revenue FROM orders o JOIN order_items i ON i.order_id = o.id "
        f"WHERE o.ordered_on LIKE '{year}-%' AND o.status <> 'cancelled' GROUP BY day"
    )
    passing = (
        f"SELECT MIN(day) FROM (SELECT day, SUM(revenue) OVER (ORDER BY day) AS sum FROM ({days})) WHERE sum > {most}"
    )
    return SqlQuestion(
        f"On which day did the revenue of {year}, added up from the first day of the year and without cancelled "
        f"orders, first exceed {most}? Write it as YYYY-MM-DD.",
        passing.format(_REVENUE),
        "text",
        (passing.format(_UNDISCOUNTED), passing.format(_WITHOUT_NULLS)),
        level=5,
    )


def best_of_each_category(rng: Random) -> SqlQuestion:
    year = rng.choice(YEARS)
    ranked = (
        f"SELECT p.category, p.name, RANK() OVER (PARTITION BY p.category ORDER BY SUM({{}}) DESC) AS place "
        "FROM order_items i JOIN orders o ON o.id = i.order_id JOIN products p ON p.id = i.product_id "
        f"WHERE o.ordered_on LIKE '{year}-%' GROUP BY p.id"
    )
    best = f"SELECT name FROM ({ranked}) WHERE place = 1 ORDER BY category"
    return SqlQuestion(
        f"For each category in alphabetical order: the name of the product with the highest revenue of {year}.",
        best.format(_REVENUE),
        "list",
        (best.format("i.quantity"), best.format(_WITHOUT_NULLS)),
        level=5,
        items=len(CATEGORIES),
    )


def top_customers(rng: Random) -> SqlQuestion:
    _, category, _ = _where(rng)
    revenue = (
        "SELECT c.name, SUM({}) AS revenue FROM customers c JOIN orders o ON o.customer_id = c.id JOIN order_items i "
        "ON i.order_id = o.id JOIN products p ON p.id = i.product_id "
        f"WHERE p.category = '{category}' AND o.status <> 'cancelled' GROUP BY c.id"
    )
    # Customers with the same revenue are left out, so that there are too few.
    ranked = (
        "SELECT name, RANK() OVER (ORDER BY revenue DESC) AS place, "
        f"COUNT(*) OVER (PARTITION BY ROUND(revenue, 2)) AS same FROM ({revenue})"
    )
    top = f"SELECT name FROM ({ranked}) WHERE place <= 3 AND same = 1 ORDER BY place"
    return SqlQuestion(
        f"Which 3 customers have the highest revenue in the category {category}, without cancelled orders? "
        "Their names, the highest first.",
        top.format(_REVENUE),
        "list",
        (top.format("i.quantity"),),
        level=5,
        items=3,
    )


def median_worth(rng: Random) -> SqlQuestion:
    country, _, _ = _where(rng)
    worth = (
        f"SELECT SUM({_REVENUE}) AS worth FROM orders o JOIN order_items i ON i.order_id = o.id "
        f"JOIN customers c ON c.id = o.customer_id WHERE c.country = '{country}' GROUP BY o.id"
    )
    placed = f"SELECT worth, ROW_NUMBER() OVER (ORDER BY worth) AS place, COUNT(*) OVER () AS n FROM ({worth})"
    return SqlQuestion(
        f"What is the median revenue of an order by customers of {country}? With an even number of orders, it is the "
        "mean of the two in the middle.",
        f"SELECT AVG(worth) FROM ({placed}) WHERE place IN ((n + 1) / 2, (n + 2) / 2)",
        "number",
        (f"SELECT AVG(worth) FROM ({worth})",),
        level=5,
    )


TEMPLATES: tuple[Draw, ...] = (
    customers_of_country,
    orders_of_year,
    cheapest_sold,
    mean_weight,
    revenue_of_country,
    buyers_of_category,
    most_sold,
    mean_pieces,
    never_bought,
    not_by_method,
    orders_per_customer,
    unpaid,
    days_to_pay,
    best_month,
    soon_after_signing_up,
    weekday,
    longest_pause,
    rising_customers,
    passing_day,
    best_of_each_category,
    top_customers,
    median_worth,
)
"""What draws a question, the easier ones first."""
