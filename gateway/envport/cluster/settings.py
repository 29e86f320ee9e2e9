"""The settings that all hosts and replicas of a cluster share."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from typing import Any

from envport.definition import EnvironmentDefinition
from envport.episodes import Limits
from envport.errors import ConfigurationError
from envport.runtimes.origin import Origin

__all__ = ["ClusterSettings"]


@dataclass(frozen=True)
class ClusterSettings:
    """Settings that the first replica decides and all others have to match. Plain data.

    Attributes:
        version: Version of envport.
        environments: The origin of each environment, by its name.
        limits: Limits on the episodes of each host.
        secret: Signs handles and the tokens of single episodes.
        store: URL of the PostgreSQL database that hosts record episodes in; `None` if they keep the latest in memory.
    """

    version: str
    environments: Mapping[str, dict[str, Any]]
    limits: dict[str, Any]
    secret: str = field(repr=False)
    store: str | None = field(default=None, repr=False)

    @classmethod
    def of(
        cls,
        environments: Iterable[EnvironmentDefinition],
        limits: Limits,
        secret: str | None,
        store: str | None = None,
    ) -> ClusterSettings:
        """The settings of a replica.

        Args:
            environments: The environments to serve.
            limits: Limits on the episodes of each host.
            secret: The shared key. If not given, a random one is made, which is used only if this replica is the
                first.
            store: URL of the PostgreSQL database that hosts record episodes in.

        Raises:
            ConfigurationError: Another process cannot find an environment, or a limit is set for an environment that
                is not served.
        """
        environments = list(environments)
        limits.require(spec.name for spec in environments)
        origins = {spec.name: Origin.of(spec).data() for spec in environments}
        return cls(version("envport"), origins, asdict(limits), secret or secrets.token_urlsafe(32), store)

    def require(self, agreed: ClusterSettings, *, secret: bool) -> None:
        """Check that these settings match those of the cluster.

        Args:
            agreed: The settings of the cluster.
            secret: Whether the secret has to be equal, because the user gave it.

        Raises:
            ConfigurationError: They differ; the message says where.
        """
        differences = [
            *self._environment_differences(agreed),
            *(
                f"limit {name} is {agreed.limits.get(name)} there and {mine} here"
                for name, mine in self.limits.items()
                if agreed.limits.get(name) != mine
            ),
        ]
        if self.version != agreed.version:
            differences.append(f"envport is {agreed.version} there and {self.version} here")
        if self.store != agreed.store:
            # Without the URLs, which hold passwords.
            differences.append("episodes are recorded elsewhere (--store)")
        if secret and self.secret != agreed.secret:
            differences.append("ENVPORT_SECRET is another one")
        if differences:
            raise ConfigurationError(
                "the cluster runs a gateway with other settings: "
                + "; ".join(differences)
                + ". Serve the same ones, take another --ray-namespace, or end that one: envport cluster stop"
            )

    def _environment_differences(self, agreed: ClusterSettings) -> Iterable[str]:
        for name in {**agreed.environments, **self.environments}:
            if name not in self.environments:
                yield f"environment {name!r} is served there only"
            elif name not in agreed.environments:
                yield f"environment {name!r} is served here only"
            elif self.environments[name] != agreed.environments[name]:
                yield f"environment {name!r} is another one, or has other options, tools or scoring"
