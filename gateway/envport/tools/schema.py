"""Tools: makes JSON Schema from typed methods, and keyword arguments from a model's arguments.

MCP clients in both eras, the control plane and the training bridge all get the listing that is made here. Its key
order is fixed, so that equal tools are equal as bytes too.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import jsonschema
from griffe import Docstring, DocstringSectionKind, parse_google
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, create_model
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema
from typing_extensions import is_typeddict

from envport.environment import Environment, Progress, ToolDefinition, ToolHints, tool_hints
from envport.errors import InvalidArguments, InvalidEnvironment
from envport.tools.binding import Binder, ModelBinder, SchemaBinder
from envport.tools.content import is_content_block
from envport.tools.dialects import check_schema, validator_of
from envport.tools.references import dangling_reference, endless_reference
from envport.tools.writable import why_unwritable
from envport.types import Observation, Step

__all__ = ["ToolSpec", "documentation", "fingerprint", "from_definition", "progress_parameter", "tools_of"]

# A schema with other keywords than these may forbid keys that it does not name.
_OPEN = {"$defs", "$schema", "description", "properties", "required", "title", "type"}
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


@dataclass(frozen=True)
class ToolSpec:
    """A tool as it is listed and called.

    Attributes:
        name: Name of the tool.
        method: Name of the environment's method that implements it.
        input_schema: JSON Schema 2020-12 of the arguments; always an object with `properties`.
        binder: Checks the arguments of a call, and turns them into keyword arguments.
        description: What the tool does.
        output_schema: JSON Schema of the structured result, if the method's return annotation defines one.
        hints: Title and behavioural hints.
        progress: Name of the method's parameter that takes a `Progress`, if it has one.
        by_name: Whether the method is called as `method(name, arguments)`, with the progress by its name.
    """

    name: str
    method: str
    input_schema: dict[str, Any]
    binder: Binder = field(repr=False)
    description: str = ""
    output_schema: dict[str, Any] | None = None
    hints: ToolHints = field(default_factory=ToolHints)
    progress: str | None = None
    by_name: bool = False

    @cached_property
    def listing(self) -> dict[str, Any]:
        """The tool as `tools/list` shows it. Do not modify it."""
        shown: dict[str, Any] = {"name": self.name}
        if self.hints.title:
            shown["title"] = self.hints.title
        if self.description:
            shown["description"] = self.description
        shown["inputSchema"] = self.input_schema
        if self.output_schema is not None:
            shown["outputSchema"] = self.output_schema
        if annotations := self.hints.annotations():
            shown["annotations"] = annotations
        return shown

    @cached_property
    def more_keys(self) -> bool:
        """Whether structured results may have keys that the output schema does not name."""
        return self.output_schema is None or self.output_schema.keys() <= _OPEN

    def bind(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Check a call's arguments, and turn them into the method's keyword arguments.

        Args:
            arguments: The arguments that the model sent, as parsed JSON.

        Raises:
            InvalidArguments: Names each argument that breaks the schema, what was wrong, and what is allowed.
        """
        try:
            return self.binder(arguments)
        except RecursionError:
            raise InvalidArguments("The arguments are nested too deeply to be checked.") from None
        except (ValueError, OverflowError) as error:
            # For example NaN, or a number that is too large for Python to convert.
            raise InvalidArguments(f"The arguments contain something that cannot be checked: {error}.") from None


def tools_of(environment: Environment) -> dict[str, ToolSpec]:
    """The tools of an environment by name, in the order in which they were defined, inherited ones first.

    Raises:
        InvalidEnvironment: A tool cannot be described by a schema or listed as JSON, or two tools have the same name.
    """
    specs: dict[str, ToolSpec] = {}
    for spec in _all_tools(environment):
        if not spec.name:
            raise InvalidEnvironment(f"{type(environment).__qualname__} has a tool without a name")
        if spec.name in specs:
            raise InvalidEnvironment(f"{type(environment).__qualname__} has two tools named {spec.name!r}")
        if (why := why_unwritable(spec.listing)) is not None:
            # One such tool would break the answer that lists all environments.
            raise InvalidEnvironment(
                f"tool {spec.name!r} of {type(environment).__qualname__} cannot be listed: {why}. Its name, title, "
                "description and schemas have to be JSON in UTF-8"
            )
        specs[spec.name] = spec
    # Each task may have tools of its own.
    if not specs and type(environment).tools_for is Environment.tools_for:
        raise InvalidEnvironment(f"{type(environment).__qualname__} has no tools: mark methods with @tool")
    return specs


def fingerprint(listing: Iterable[Mapping[str, Any]]) -> str:
    """SHA-256, in hex, of a tool listing in canonical JSON (sorted keys, no spaces, ASCII)."""
    canonical = json.dumps(list(listing), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode("ascii")).hexdigest()


def _all_tools(environment: Environment) -> Iterable[ToolSpec]:
    seen: set[str] = set()
    for cls in reversed(type(environment).__mro__):
        for attribute in vars(cls):
            # An override of a tool is a tool too, even if it is not marked with `@tool` itself.
            method = getattr(type(environment), attribute, None)
            hints = tool_hints(method) or (tool_hints(vars(cls)[attribute]) if callable(method) else None)
            if hints is not None and attribute not in seen:
                seen.add(attribute)
                if not inspect.isfunction(inspect.getattr_static(type(environment), attribute)):
                    raise InvalidEnvironment(
                        f"{type(environment).__qualname__}.{attribute}: only a plain method can be a tool, not a "
                        "staticmethod, classmethod or property"
                    )
                yield _from_method(attribute, cast("Callable[..., Any]", method), hints)
    for definition in environment.tool_definitions():
        yield from_definition(definition, environment)


def from_definition(definition: ToolDefinition, environment: Environment) -> ToolSpec:
    """The tool of a definition.

    Raises:
        InvalidEnvironment: Its schema is not valid, or the environment has no such method.
    """
    where = f"tool {definition.name!r} of {type(environment).__qualname__}"
    if not callable(getattr(environment, definition.method, None)):
        raise InvalidEnvironment(f"{where}: there is no method {definition.method!r}")
    schema = dict(definition.input_schema)
    if schema.get("type", "object") != "object":
        raise InvalidEnvironment(f"{where}: the schema of the arguments has to be of type object")
    schema.setdefault("type", "object")
    schema.setdefault("properties", {})
    _require_checkable(where, schema)
    return ToolSpec(
        name=definition.name,
        method=definition.method,
        input_schema=schema,
        binder=SchemaBinder(validator_of(schema), schema),
        description=definition.description,
        output_schema=dict(definition.output_schema) if definition.output_schema is not None else None,
        hints=definition.hints,
        progress=progress_parameter(getattr(environment, definition.method)),
        by_name=True,
    )


def _require_checkable(where: str, schema: dict[str, Any]) -> None:
    try:
        check_schema(schema)
        dangling, endless = dangling_reference(schema), endless_reference(schema)
    except jsonschema.SchemaError as error:
        raise InvalidEnvironment(f"{where}: its schema is not valid JSON Schema: {error.message}") from None
    except RecursionError:
        raise InvalidEnvironment(f"{where}: its schema is nested too deeply to be checked") from None
    if dangling is not None:
        raise InvalidEnvironment(f"{where}: its schema refers to {dangling!r}, which is not within it")
    if endless is not None:
        raise InvalidEnvironment(
            f"{where}: its schema refers to {endless!r}, which leads back to itself: no value could ever be checked"
        )


class _Schema(GenerateJsonSchema):
    """JSON Schema 2020-12 without the titles that pydantic derives from names."""

    schema_dialect = _DIALECT

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        return self._without_title(super().model_schema(schema), schema["cls"])

    def typed_dict_schema(self, schema: core_schema.TypedDictSchema) -> JsonSchemaValue:
        return self._without_title(super().typed_dict_schema(schema), schema.get("cls"))

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        return self._without_title(super().dataclass_schema(schema), schema["cls"])

    @staticmethod
    def _without_title(made: JsonSchemaValue, cls: type[Any] | None) -> JsonSchemaValue:
        if cls is not None and made.get("title") == cls.__name__:
            del made["title"]
        return made


def _from_method(attribute: str, method: Callable[..., Any], hints: ToolHints) -> ToolSpec:
    where = f"tool {method.__qualname__}"
    try:
        annotations = get_type_hints(method, include_extras=True)
    except NameError as error:
        raise InvalidEnvironment(f"{where}: its type hints cannot be read: {error}") from None
    description, documented = documentation(method)
    fields: dict[str, Any] = {}
    parameters: dict[str, str] = {}
    progress: str | None = None
    for index, parameter in enumerate(list(inspect.signature(method).parameters.values())[1:]):
        if _is_progress(annotations.get(parameter.name)):
            progress = parameter.name
            continue
        # Numbered field names, so that a parameter may have a name that pydantic reserves.
        fields[f"field_{index}"] = _field(parameter, annotations, documented.get(parameter.name), where)
        parameters[f"field_{index}"] = parameter.name
    schema, model = _model(where, fields)
    flat = all(_is_flat(annotation) for annotation, _ in fields.values())
    filled = frozenset(name for name, (_, default) in fields.items() if isinstance(default, FieldInfo))
    return ToolSpec(
        name=hints.name or attribute,
        method=attribute,
        input_schema=schema,
        binder=ModelBinder(model, schema, parameters, flat, filled),
        description=description,
        output_schema=_output_schema(annotations.get("return"), where),
        hints=hints,
        progress=progress,
    )


def progress_parameter(function: Any) -> str | None:
    """Name of the parameter that takes a `Progress`; `None` if there is none."""
    try:
        annotations = get_type_hints(function)
    except (NameError, TypeError):
        # Nothing else is read from these hints, so they may be anything.
        return None
    return next((name for name, annotation in annotations.items() if _is_progress(annotation)), None)


def _is_progress(annotation: Any) -> bool:
    return annotation is Progress or (get_origin(annotation) in (Union, UnionType) and Progress in get_args(annotation))


def _field(
    parameter: inspect.Parameter, annotations: Mapping[str, Any], description: str | None, where: str
) -> tuple[Any, Any]:
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
        raise InvalidEnvironment(f"{where}: parameter {parameter.name!r} has to be passable by name")
    if parameter.name not in annotations:
        raise InvalidEnvironment(f"{where}: parameter {parameter.name!r} has no type hint")
    annotation = annotations[parameter.name]
    default = ... if parameter.default is parameter.empty else parameter.default
    described = default.description if isinstance(default, FieldInfo) else None
    described = described or FieldInfo.from_annotation(annotation).description
    return Annotated[annotation, Field(alias=parameter.name, description=described or description)], default


def _model(where: str, fields: dict[str, Any]) -> tuple[dict[str, Any], type[BaseModel]]:
    config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, arbitrary_types_allowed=False)
    try:
        model = create_model("Arguments", __config__=config, **fields)
        schema = model.model_json_schema(schema_generator=_Schema)
    except (PydanticSchemaGenerationError, PydanticUserError, TypeError, RecursionError) as error:
        raise InvalidEnvironment(f"{where}: no JSON Schema can be made of its type hints: {error}") from None
    for name, definition in schema.get("$defs", {}).items():
        # Pydantic adds the title of an enum later, so `_Schema` cannot remove it.
        if name.endswith(definition.get("title", "")) and "enum" in definition:
            definition.pop("title", None)
    # Clients that model these keys and keep the others write them back in this order.
    ordered: dict[str, Any] = {"type": "object", "properties": schema.pop("properties", {})}
    if required := schema.pop("required", None):
        ordered["required"] = required
    schema.pop("title", None)
    schema.pop("type", None)
    return _whole(ordered | schema), model


def _whole(value: Any) -> Any:
    """Turn whole floats into integers, as JavaScript writes them, so that rewriting the JSON changes nothing."""
    if isinstance(value, dict):
        return {key: _whole(item) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_whole(item) for item in cast("list[Any]", value)]
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value


def documentation(documented: Any) -> tuple[str, dict[str, str]]:
    """Parse a Google-style docstring: its text without the sections, and the descriptions of the arguments."""
    texts: list[str] = []
    parameters: dict[str, str] = {}
    for section in parse_google(Docstring(inspect.getdoc(documented) or ""), warnings=False):
        if section.kind is DocstringSectionKind.text:
            texts.append(section.value)
        elif section.kind is DocstringSectionKind.parameters:
            parameters = {p.name: " ".join(p.description.split()) for p in section.value}
    return "\n\n".join(texts).strip(), parameters


def _output_schema(annotation: Any, where: str) -> dict[str, Any] | None:
    if get_origin(annotation) is Step:
        (annotation,) = get_args(annotation)
    if not isinstance(annotation, type):
        return None
    cls = cast("type[Any]", annotation)
    structured = issubclass(cls, BaseModel) or is_typeddict(cls) or hasattr(cls, "__dataclass_fields__")
    # These become the observation unchanged, without structured content.
    if not structured or issubclass(cls, Step | Observation) or is_content_block(cls):
        return None
    try:
        schema = TypeAdapter[Any](cls).json_schema(schema_generator=_Schema, mode="serialization")
    except PydanticUserError as error:
        raise InvalidEnvironment(f"{where}: no JSON Schema can be made of its result: {error}") from None
    # The schema of a recursive model is a bare reference, but the handshake era needs an object at the root.
    return schema if schema.get("type") == "object" else None


_FLAT = (str, int, float, bool, type(None))


def _is_flat(annotation: Any) -> bool:
    """Whether strict mode accepts the same values of this type from Python and from JSON."""
    if annotation in _FLAT:
        return True
    origin = get_origin(annotation)
    if origin is Annotated:
        return _is_flat(get_args(annotation)[0])
    if origin is Literal:
        return all(type(value) in _FLAT for value in get_args(annotation))
    if origin is dict and get_args(annotation)[0] is not str:
        return False
    if origin in (Union, UnionType, list, dict):
        return all(_is_flat(argument) for argument in get_args(annotation))
    return False
