"""The model of an evaluated agent: served somewhere already, or served for the evaluation."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from envport.errors import InvalidAccess, InvalidOption
from envport.references import is_address
from envport_bridges.agents.children import ChildServer
from envport_bridges.evaluation.agent_models.sessions import ModelSessions, describe

__all__ = ["AGENT_MODEL", "AgentModel"]

AGENT_MODEL = "envport:agent_model"
"""Metadata key in Inspect's log for what the server told of the agent's model."""

_CHILD = "envport_bridges.model_serving.child"
_TOKEN = "ENVPORT_MODEL_TOKEN"


@dataclass(frozen=True)
class AgentModel:
    """A served model, and the token to control it.

    Attributes:
        url: Address of its server, without `/v1`.
        token: The control token.
        description: What the server tells of it: `name`, the fingerprint of its `weights`, and its `settings`.
        child: The server's process, if it was started for this.
    """

    url: str
    token: str
    description: Mapping[str, Any]
    child: ChildServer | None = None

    _open: ClassVar[dict[str, AgentModel]] = {}

    @classmethod
    def of(cls, model: str, settings: Mapping[str, Any]) -> AgentModel:
        """The model for a text. Within this process, the same text always gives the same model.

        Args:
            model: Address of an `envport model serve`, whose token is in `ENVPORT_MODEL_TOKEN`; or a folder or a name
                on the hub, for which a server is started.
            settings: How the model is served, if a server is started; see `ServedModelSettings`.

        Raises:
            InvalidOption: Settings are given for a model that is served already.
            InvalidAccess: There is no token, or it is wrong.
            ConfigurationError: The model cannot be served.
            AgentModelUnreachable: Nobody serves a model at the address.
        """
        key = json.dumps([model, dict(settings)], sort_keys=True)
        found = cls._open.get(key)
        if found is None or (found.child is not None and not found.child.running):
            found = cls._open[key] = cls._at(model, settings) if is_address(model) else cls._serving(model, settings)
        return found

    @classmethod
    def _at(cls, address: str, settings: Mapping[str, Any]) -> AgentModel:
        if settings:
            raise InvalidOption(
                f"how the model at {address} is sampled from is the server's business: give {', '.join(settings)} to "
                "`envport model serve`"
            )
        url = address.rstrip("/").removesuffix("/v1")
        token = os.environ.get(_TOKEN)
        if not token:
            raise InvalidAccess(f"{_TOKEN} is not set: it has to be the token of the model's server at {url}")
        return cls(url, token, describe(url, token))

    @classmethod
    def _serving(cls, model: str, settings: Mapping[str, Any]) -> AgentModel:
        token = secrets.token_urlsafe(32)
        child = ChildServer(_CHILD, {**settings, "model": model, "token": token}, f"the server of {model}")
        return cls(child.url, token, describe(child.url, token), child)

    @classmethod
    def stop_all(cls) -> None:
        """Stop the servers that were started."""
        for model in cls._open.values():
            if model.child is not None:
                model.child.stop()
        cls._open.clear()

    @property
    def name(self) -> str:
        """Its name in Inspect's logs."""
        return f"envport/{self.description['name']}"

    def sessions(self) -> ModelSessions:
        """A client that begins and ends sessions."""
        return ModelSessions(self.url, self.token)
