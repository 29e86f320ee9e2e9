"""The server of a model: asked once whether it answers, before an evaluation starts."""

from __future__ import annotations

import os

import httpx2
from inspect_ai.model import Model, ModelName
from inspect_ai.model._model import active_model  # has no public name

from envport.errors import InvalidOption

__all__ = ["require_model_server"]

_CONNECT_SECONDS = 5.0
_ANSWER_SECONDS = 2.0


def require_model_server() -> None:
    """Check that something answers at the address of the model that Inspect is about to evaluate, if it has one.

    Inspect sends a request again for minutes, and says nothing, if nobody listens there.

    Raises:
        InvalidOption: Nothing answers, or the address is no URL.
    """
    url = _address(active_model())
    if url is None:
        return
    timeout = httpx2.Timeout(_ANSWER_SECONDS, connect=_CONNECT_SECONDS)
    try:
        # Nothing secret is sent, so it does not matter who answers.
        with httpx2.Client(timeout=timeout, verify=False) as http:
            http.head(url)
    except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.UnsupportedProtocol, httpx2.InvalidURL) as error:
        raise InvalidOption(
            f"the model's server does not answer at {url}: {str(error) or type(error).__name__}. Start it, or give its "
            "address by --model-base-url"
        ) from error
    except httpx2.HTTPError:
        # Somebody listens there. What it thinks of the question does not matter.
        return


def _address(model: Model | None) -> str | None:
    """The address of a model's server, where it is not the provider's own."""
    if model is None:
        return None
    # Some providers set it later, and then use what they were given, or a variable of this name.
    variable = f"{ModelName(model).api.upper().replace('-', '_')}_BASE_URL"
    return model.api.base_url or model.explicit_base_url or os.environ.get(variable) or None
