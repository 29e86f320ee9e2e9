"""The fields of requests that open and reset episodes, as clients send them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    StrictBool,
    StrictInt,
    ValidationError,
    field_validator,
)
from pydantic_core import PydanticCustomError

from envport.episodes.requests import MAX_LABEL, MAX_LABELS, OpenRequest
from envport.errors import InvalidRequest
from envport.types import CALL_ID_KEY, Choice, Task

__all__ = ["ForkFields", "OpenFields", "TaskFields", "call_id_of", "field_at", "told_of_fields"]

_LONGEST_CALL_ID = 200
# Fields that hold values by names of their own.
_NAMED = frozenset({"labels", "secrets"})


class TaskFields(BaseModel):
    """Which task to play. If no task is given, the seed selects one."""

    model_config = ConfigDict(extra="forbid")

    split: Annotated[str | None, Field(description="The split to take the task from; the first one if not given.")] = (
        None
    )
    task: Annotated[
        StrictInt | Task | None, Field(description="Index of the task in the split, or a task of one's own.")
    ] = None
    seed: Annotated[
        StrictInt | None,
        Field(description="From 0 to 2**63-1. The same task and seed give the same episode."),
    ] = None

    @field_validator("task", mode="before")
    @classmethod
    def _index_or_task(cls, value: object) -> object:
        if isinstance(value, str | float | list):
            raise PydanticCustomError("task", "it has to be an index into the split, or a task with an id")
        return value

    @property
    def choice(self) -> Choice:
        """The fields as the table of episodes takes them."""
        return Choice(self.split, self.task, self.seed)


class ForkFields(BaseModel):
    """Which copy of an episode to open."""

    model_config = ConfigDict(extra="forbid")

    step: Annotated[
        StrictInt | None,
        Field(description="How many of the episode's calls the copy begins with; all of them if not given."),
    ] = None
    mint_token: Annotated[
        StrictBool, Field(description="Return a bearer token that plays the copy and opens nothing else.")
    ] = False
    labels: Annotated[
        dict[str, str] | None, Field(description="Labels of the copy; those of the episode if not given.")
    ] = None


class OpenFields(TaskFields):
    """A request for an episode."""

    environment: Annotated[str, Field(description="Name of the environment.")]
    reward_in_meta: Annotated[
        StrictBool, Field(description="Put the reward into `_meta` of MCP results. Not for evaluation.")
    ] = False
    mint_token: Annotated[
        StrictBool, Field(description="Return a bearer token that plays this episode and opens nothing else.")
    ] = False
    labels: Annotated[
        dict[str, str],
        Field(
            default_factory=dict,
            description=f"Labels such as run, group and sample, to find the episode by; at most {MAX_LABELS}, of at "
            f"most {MAX_LABEL} characters. The player never sees them.",
        ),
    ]
    secrets: Annotated[
        dict[str, SecretStr],
        Field(
            default_factory=dict,
            description="Secrets for the environment, by name. They are recorded, logged and returned nowhere.",
            repr=False,
        ),
    ]

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> OpenFields:
        """Read fields that did not come as the body of a request.

        Raises:
            InvalidRequest: A field is malformed or unknown.
        """
        try:
            return cls.model_validate(fields)
        except ValidationError as error:
            said = ((field_at(detail["loc"]) or "fields", detail["msg"]) for detail in error.errors())
            raise InvalidRequest(told_of_fields(said)) from None

    def request(self, principal: str) -> OpenRequest:
        """The request as the table of episodes takes it.

        Args:
            principal: Name of the principal that asks.
        """
        secrets = {name: secret.get_secret_value() for name, secret in self.secrets.items()}
        return OpenRequest(
            self.environment, principal, self.choice, self.reward_in_meta, labels=self.labels, secrets=secrets
        )


def call_id_of(meta: Mapping[str, Any]) -> str | None:
    """The id that a client gave a tool call; `None` if it gave none.

    Args:
        meta: The `_meta` of the call.

    Raises:
        InvalidRequest: It is malformed.
    """
    given = meta.get(CALL_ID_KEY)
    if given is not None and not (isinstance(given, str) and 0 < len(given) <= _LONGEST_CALL_ID):
        raise InvalidRequest(f"_meta[{CALL_ID_KEY!r}] has to be a string of 1 to {_LONGEST_CALL_ID} characters")
    return given


def field_at(location: Sequence[int | str]) -> str:
    """The name of a field that is malformed; empty if it is all of them.

    Args:
        location: Where it is. Within a union, the names of its members follow.
    """
    if location and location[0] in _NAMED and len(location) > 1:
        return f"{location[0]} {str(location[1])[:80]!r}"
    return str(location[0]) if location else ""


def told_of_fields(problems: Iterable[tuple[str, str]]) -> str:
    """The message about fields that are malformed.

    Args:
        problems: The names of fields, each with what is wrong with it. For a union, there is one for each member.
    """
    by_field: dict[str, list[str]] = {}
    for field, said in problems:
        by_field.setdefault(field, []).append(said)
    return "; ".join(f"{field}: {' or '.join(dict.fromkeys(said))}" for field, said in by_field.items())
