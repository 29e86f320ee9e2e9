"""The environment `support`."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from envport import Environment, Solution, Step, Task, TaskSource, tool
from envport.errors import InvalidOption
from envport_envs.support.conduct import Conduct, tells
from envport_envs.support.customer import ScriptedCustomer
from envport_envs.support.model_customer import KEY, ModelCustomer
from envport_envs.support.policy import POLICY
from envport_envs.support.scenario import Question, carry_out
from envport_envs.support.shop import CancelReason, TransferReason, dollars
from envport_envs.support.solution import solution_calls
from envport_envs.support.tasks import NUMBERS, scenario_of, splits

__all__ = ["SupportEnvironment"]

Id = Annotated[str, Field(min_length=1, max_length=100)]
Words = Annotated[str, Field(min_length=1, max_length=200)]


class SupportEnvironment(Environment):
    """Customer service: do what a customer wants as far as the policy allows it, for a reward of 1.

    The prompt is a policy of eight rules. The tools read and change a database of accounts, orders and products, and
    `reply` talks to the customer. The tools do not keep the policy: the player has to.

    The customer follows a script, or is played by a model. The customer has one to seven wishes; some of them the
    policy forbids.

    When the episode has ended, the reward is 1 if the database is exactly as it should be, every question was
    answered, no rule was broken at any time, and nothing was promised that the policy forbids. It is 0 otherwise.

    A task is a scenario by its number, with a database of its own. Every fifth is held out of `train` and makes up
    `test`. Played without a task, the seed chooses the scenario.

    Args:
        model: The name of the model that plays the customer. If not given, the customer follows a script.
        base_url: The address of the model's OpenAI-compatible API, such as `http://localhost:8000/v1`. Its key is
            the secret `CUSTOMER_API_KEY`.
    """

    instructions = POLICY
    max_steps = 100

    def __init__(self, model: str | None = None, base_url: str | None = None):
        if (model is None) != (base_url is None):
            raise InvalidOption("support: a model for the customer needs both options, model and base_url")
        if base_url is not None and not base_url.startswith(("http://", "https://")):
            raise InvalidOption(f"support: base_url is {base_url!r}; it has to begin with http:// or https://")
        self.deterministic = model is None
        self._model = model
        self._base_url = base_url
        self._played_by: ModelCustomer | None = None

    def splits(self) -> Mapping[str, TaskSource]:
        """Tasks to train on, and tasks that are held out."""
        return splits()

    async def reset(self, *, seed: int, task: Task | None) -> str:
        """Make the database, and let the customer speak."""
        self._scenario = scenario_of({"number": self.rng.randrange(NUMBERS)} if task is None else task.metadata)
        self._shop = copy.deepcopy(self._scenario.shop)
        self._conduct = Conduct(self._shop)
        self._done: list[tuple[str, str]] = []
        self._script = ScriptedCustomer(self._scenario, self._shop, self._conduct, self._done)
        if self._model is None or self._base_url is None:
            said = self._script.opening()
        else:
            self._played_by = ModelCustomer(self._scenario, self._model, self._base_url, self.secrets.get(KEY, ""))
            said = await self._played_by.opening()
        self._conduct.customer_said(said)
        return f"Customer: {said}"

    async def close(self) -> None:
        """Close the connection to the model."""
        if self._played_by is not None:
            await self._played_by.close()

    @tool(read_only=False, destructive=False, idempotent=False, open_world=False)
    async def reply(self, message: Annotated[str, Field(min_length=1, max_length=4_000)]) -> Step[str]:
        """Say something to the customer. Returns what the customer says next.

        Args:
            message: What to say.
        """
        self._conduct.agent_said(message)
        turn = self._script.hear(message) if self._played_by is None else await self._played_by.hear(message)
        self._conduct.customer_said(turn.text, answered=message)
        return Step(f"Customer: {turn.text}", terminated=turn.over)

    @tool(read_only=True, idempotent=True, open_world=False)
    def identify_customer(self, email: Words, postal_code: Words) -> dict[str, str]:
        """Find the account of a customer.

        Args:
            email: The email that the customer has told.
            postal_code: The postal code that the customer has told.
        """
        account = self._shop.identify(email, postal_code)
        self._conduct.identified(account.user_id, email, postal_code)
        return {"user_id": account.user_id, "name": account.name}

    @tool(read_only=True, idempotent=True, open_world=False)
    def get_customer(self, user_id: Id) -> dict[str, Any]:
        """Open an account: name, email, address, payment methods and order numbers.

        Args:
            user_id: The id of the account.
        """
        account = self._shop.account(user_id)
        self._conduct.opened_account(user_id)
        return vars(account) | {"address": vars(account.address)}

    @tool(read_only=True, idempotent=True, open_world=False)
    def get_order(self, order_id: Id) -> dict[str, Any]:
        """Open an order: status, days, address, payment method, tracking number and items.

        Args:
            order_id: The number of the order, such as W1234.
        """
        order = self._shop.order(order_id)
        self._conduct.opened_order(order_id)
        return order.view()

    @tool(read_only=True, idempotent=True, open_world=False)
    def list_products(self) -> dict[str, str]:
        """List the products: the name of each, by its id."""
        return {product.product_id: product.name for product in self._shop.products.values()}

    @tool(read_only=True, idempotent=True, open_world=False)
    def get_product(self, product_id: Id) -> dict[str, Any]:
        """Open a product: its variants, each with its item id, price and stock.

        Args:
            product_id: The id of the product.
        """
        product = self._shop.product(product_id)
        variants = [vars(one) | {"price": dollars(one.price)} for one in product.variants.values()]
        return {"name": product.name, "final_sale": product.final_sale, "variants": variants}

    @tool(read_only=False, destructive=True, idempotent=False, open_world=False)
    def cancel_order(self, order_id: Id, reason: CancelReason) -> str:
        """Cancel an order, and refund it to the payment method of the order.

        Args:
            order_id: The number of the order.
            reason: Why, as the customer says.
        """
        return self._change("cancel_order", order_id=order_id, reason=reason)

    @tool(read_only=False, destructive=True, idempotent=True, open_world=False)
    def change_address(self, order_id: Id, street: Words, city: Words, postal_code: Words) -> str:
        """Send an order to another address.

        Args:
            order_id: The number of the order.
            street: The street, with the number of the house.
            city: The city.
            postal_code: The postal code.
        """
        return self._change("change_address", order_id=order_id, street=street, city=city, postal_code=postal_code)

    @tool(read_only=False, destructive=True, idempotent=False, open_world=False)
    def change_item(self, order_id: Id, item_id: Id, new_item_id: Id) -> str:
        """Put another item into an order that has not been sent. A difference of the price is charged or refunded.

        Args:
            order_id: The number of the order.
            item_id: The item of the order that goes.
            new_item_id: The item that comes in its place.
        """
        return self._change("change_item", order_id=order_id, item_id=item_id, new_item_id=new_item_id)

    @tool(read_only=False, destructive=True, idempotent=False, open_world=False)
    def return_items(
        self, order_id: Id, item_ids: Annotated[list[Id], Field(min_length=1, max_length=20)], refund_to: Id
    ) -> str:
        """Take items of a delivered order back, and refund them.

        Args:
            order_id: The number of the order.
            item_ids: The items.
            refund_to: The id of the payment method that gets the money.
        """
        return self._change("return_items", order_id=order_id, item_ids=item_ids, refund_to=refund_to)

    @tool(read_only=False, destructive=True, idempotent=False, open_world=False)
    def exchange_item(self, order_id: Id, item_id: Id, new_item_id: Id) -> str:
        """Exchange an item of a delivered order. A difference of the price is charged or refunded.

        Args:
            order_id: The number of the order.
            item_id: The item that the customer gives back.
            new_item_id: The item that the customer gets.
        """
        return self._change("exchange_item", order_id=order_id, item_id=item_id, new_item_id=new_item_id)

    @tool(read_only=False, destructive=False, idempotent=False, open_world=False)
    def transfer_to_human(self, order_id: Id, reason: TransferReason) -> Step[str]:
        """Hand the conversation over to a person. This ends it.

        Args:
            order_id: The order that it is about.
            reason: Why a person is needed.
        """
        return Step(self._change("transfer_to_human", order_id=order_id, reason=reason), terminated=True)

    @tool(read_only=False, destructive=False, idempotent=False, open_world=False)
    def end_conversation(self) -> Step[str]:
        """End the conversation, where the customer does not."""
        return Step("The conversation is over.", terminated=True)

    def score(self) -> float:
        """1 if all that `final_state` says is as it should be."""
        verdict = self.final_state()
        return float(verdict["database"] and verdict["answered"] and verdict["settled"] and not verdict["broken"])

    def final_state(self) -> dict[str, Any]:
        """What is judged.

        `database` says whether it is as it should be, `answered` whether the questions were answered, `settled`
        whether the customer had nothing more to say (always, with a model), and `broken` which rules were broken.
        """
        questions = [wish for wish in self._scenario.wishes if isinstance(wish, Question)]
        return {
            "database": self._shop == self._scenario.expected,
            "answered": all(any(tells(text, one.answer) for text in self._conduct.said) for one in questions),
            "settled": self._played_by is not None or self._script.settled,
            "broken": sorted(self._conduct.broken),
        }

    def legal_calls(self) -> list[tuple[str, dict[str, Any]]]:
        """A sample: talking, looking around, and some changes of the customer's orders."""
        account = self._scenario.account
        identity = {"email": account.email, "postal_code": account.address.postal_code}
        words = ("Your email and postal code, please?", "No.", "That is done.")
        calls: list[tuple[str, dict[str, Any]]] = [("reply", {"message": text}) for text in words]
        calls += [
            ("identify_customer", identity),
            ("get_customer", {"user_id": account.user_id}),
            ("list_products", {}),
        ]
        for order_id in account.orders:
            order = self._shop.orders[order_id]
            calls.append(("get_order", {"order_id": order_id}))
            if order.status in ("pending", "packed"):
                calls.append(("cancel_order", {"order_id": order_id, "reason": "no_longer_needed"}))
            left = [line.item_id for line in order.lines if line.state == "ordered"]
            if order.status == "delivered" and left:
                refund = {"order_id": order_id, "item_ids": left[:1], "refund_to": order.payment}
                calls.append(("return_items", refund))
        return calls

    def reference_solution(self, task: Task | None) -> Solution | None:
        """Ask, look, do what is allowed after a yes, and say no to the rest. Known for the customer with a script."""
        if task is None or self._model is not None:
            return None
        return Solution(solution_calls(scenario_of(task.metadata)))

    def _change(self, tool: str, **arguments: Any) -> str:
        broken = self._conduct.rules_against(tool, arguments)
        told = carry_out(self._shop, (tool, arguments))
        self._conduct.changed(arguments["order_id"], broken)
        self._done.append((tool, arguments["order_id"]))
        return told
