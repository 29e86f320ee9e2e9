"""What a model's tokens cost, for limits in dollars."""

from __future__ import annotations

from inspect_ai.model import ModelCost, ModelInfo, get_model_info, set_model_info

from envport.errors import InvalidOption

__all__ = ["set_price"]


def set_price(model: str, price: str) -> None:
    """Have Inspect count what a model costs, whether it knows the model or not.

    Args:
        model: The model's name.
        price: Dollars for a million input tokens and for a million output tokens, such as `0.15,0.60`. Tokens that the
            server has in its cache cost as much as others.

    Raises:
        InvalidOption: The price is not two numbers.
    """
    try:
        paid, made = (float(part) for part in price.split(","))
    except ValueError:
        paid = made = -1.0
    if not (0 <= paid < float("inf") and 0 <= made < float("inf")):
        raise InvalidOption(f"--price is {price!r}; it has to be INPUT,OUTPUT: dollars for a million tokens of each")
    cost = ModelCost(input=paid, output=made, input_cache_write=paid, input_cache_read=paid)
    known = get_model_info(model) or ModelInfo()
    set_model_info(model, known.model_copy(update={"cost": cost}))
