"""Profiles of the benchmark: what is measured, and the settings of the measured gateway."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from envport.environment_file import EnvironmentFile
from envport.errors import ConfigurationError

__all__ = ["BUILT_IN", "BenchTable", "GatewayProfile", "read_profile"]

_Count = Annotated[int, Field(ge=1)]
# A gateway of the bench has an address and a way to end of its own, and its callers have no token.
_NOT_TAKEN = ("token-file", "host", "allowed-host", "public-url")


class BenchTable(BaseModel):
    """The table `[bench]` of a file: what is measured. What is not given is as without a profile.

    Attributes:
        concurrency: Numbers of concurrent callers.
        calls: Calls of each target in a round.
        rounds: Number of rounds.
        opens: Episodes opened and closed in a round.
        held: Episodes held open to measure their memory.
        grown: Open episodes of the gateway with many.
        only: The parts to measure.
        against: The peer to play against.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    concurrency: Annotated[list[_Count], Field(min_length=1)] | None = None
    calls: Annotated[int, Field(ge=2)] | None = None
    rounds: _Count | None = None
    opens: _Count | None = None
    held: _Count | None = None
    grown: _Count | None = None
    only: list[str] = Field(default_factory=list)
    against: str | None = None


@dataclass(frozen=True)
class GatewayProfile:
    """Settings of the measured gateway.

    Attributes:
        file: The file of which `envport serve --config` reads them.
        settings: Its table `[serve]`.
    """

    file: Path
    settings: Mapping[str, Any]


BUILT_IN = {
    "full": BenchTable(),
    "quick": BenchTable(concurrency=[4], calls=60, rounds=2, opens=40, held=40, grown=40),
}
"""The profiles that have names."""


def read_profile(name: str) -> tuple[BenchTable, GatewayProfile | None]:
    """Read a profile.

    Args:
        name: A built-in one, or a TOML file with the tables `[bench]` and `[serve]`, such as an `envport.toml`.

    Returns:
        What is measured, and the settings of the gateway if the file has any.

    Raises:
        ConfigurationError: There is none of that name, the file cannot be read, or its table `[bench]` is malformed.
    """
    if name in BUILT_IN:
        return BUILT_IN[name], None
    path = Path(name)
    if not path.is_file():
        raise ConfigurationError(f"there is no profile {name!r}: it is a TOML file, or one of {', '.join(BUILT_IN)}")
    file = EnvironmentFile.read(path)
    try:
        table = BenchTable.model_validate(dict(file.bench))
    except ValidationError as error:
        found = error.errors(include_url=False)[0]
        key = ".".join(map(str, found["loc"]))
        if found["type"] == "extra_forbidden":
            allowed = ", ".join(BenchTable.model_fields)
            raise ConfigurationError(f"{path}, [bench] has an unknown key {key!r}; allowed: {allowed}") from None
        raise ConfigurationError(f"{path}, [bench]: {key} is {found['input']!r}: {found['msg'].lower()}") from None
    if taken := [key for key in _NOT_TAKEN if key in file.serve]:
        raise ConfigurationError(
            f"{path}, [serve]: the bench cannot play at a gateway with {taken[0]}: its callers have no token and come "
            "from this machine. Copy the file and leave that out"
        )
    return table, GatewayProfile(path, file.serve) if file.serve else None
