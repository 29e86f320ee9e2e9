"""Options of a command as frozen data classes, one for each panel of its help.

Beside `stored`, this is the one module of the command line that commands of other packages may import.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, fields
from functools import wraps
from inspect import Parameter, Signature
from typing import Annotated, Any, ClassVar, get_args, get_origin, get_type_hints

__all__ = ["OptionField", "OptionGroup", "grouped", "option_fields"]


@dataclass(frozen=True)
class OptionGroup:
    """Base of a frozen data class of options: each field is `name: Annotated[T, typer.Option(...)] = default`.

    A field of type `tuple[T, ...]`, with the default `()`, is an option that may be repeated.

    Attributes:
        title: The panel of the help that shows the options; the first panel if not given.
    """

    title: ClassVar[str | None] = None


@dataclass(frozen=True)
class OptionField:
    """One option of a group, as it is declared.

    Attributes:
        name: Name of the field.
        kind: Its type.
        option: What `typer.Option` returned.
        default: Its default.
    """

    name: str
    kind: Any
    option: Any
    default: Any


def option_fields(group: type[OptionGroup]) -> Iterator[OptionField]:
    """The options of a group, in order."""
    hints = get_type_hints(group, include_extras=True)
    for field in fields(group):
        kind, option = get_args(hints[field.name])
        yield OptionField(field.name, kind, option, field.default)


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Make a command with option groups readable for typer, which knows only flat signatures.

    The returned function has each group's fields in place of the group. It calls the command with one object for each
    group.

    Raises:
        TypeError: Two options have the same name.
    """
    groups: dict[str, type[OptionGroup]] = {}
    flat: dict[str, Parameter] = {}
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        if (group := _group(parameter)) is not None:
            groups[parameter.name] = group
        for option in _options(group) if group is not None else (parameter,):
            if option.name in flat:
                raise TypeError(f"{command.__name__}: two options are named {option.name!r}")
            flat[option.name] = option.replace(kind=Parameter.KEYWORD_ONLY)

    @wraps(command)
    def called(**values: Any) -> None:
        made = {name: _made(group, values) for name, group in groups.items()}
        command(**values, **made)

    # Both inspect and typing would look at the wrapped command otherwise.
    del called.__wrapped__
    called.__annotations__ = {name: option.annotation for name, option in flat.items()}
    vars(called)["__signature__"] = Signature(list(flat.values()))
    return called


def _group(parameter: Parameter) -> type[OptionGroup] | None:
    kind: object = parameter.annotation
    return kind if isinstance(kind, type) and issubclass(kind, OptionGroup) else None


def _options(group: type[OptionGroup]) -> Iterator[Parameter]:
    for field in option_fields(group):
        kind, option, default = field.kind, copy(field.option), field.default
        option.rich_help_panel = group.title
        if get_origin(kind) is tuple:
            # typer repeats an option whose type is a list.
            kind, default = list[get_args(kind)[0]] | None, None
        yield Parameter(field.name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option])


def _made(group: type[OptionGroup], values: dict[str, Any]) -> OptionGroup:
    """Make a group of its values, and take these from `values`."""
    given = {field.name: values.pop(field.name) for field in fields(group)}
    repeated = {field.name for field in fields(group) if field.default == ()}
    return group(**{name: tuple(value or ()) if name in repeated else value for name, value in given.items()})
