"""Where an environment comes from, as plain data, so that another process can load the same one."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

from envport.definition import EnvironmentDefinition
from envport.environment import Environment
from envport.errors import ConfigurationError, EnvironmentNotFound, InvalidEnvironment, InvalidOption
from envport.scoring import Scorer

__all__ = ["Origin"]

_SCRIPT = "__envport_script__"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an environment's class is found, and the options for its constructor.

    Attributes:
        name: The name under which it is served.
        module: The module of its class.
        file: The file of its class, if its module cannot be imported by name.
        qualname: The class within the module.
        options: The constructor's keyword arguments, as JSON values.
        fingerprint: Fingerprint of its tool listing.
        unshown_options: Further keyword arguments, as JSON values.
        limits: Limits that replace those of the class.
        scorer: Where the function is that scores final states; `None` if nothing from outside does.
    """

    name: str
    module: str
    file: str
    qualname: str
    options: dict[str, Any]
    fingerprint: str
    unshown_options: dict[str, Any] = field(default_factory=dict[str, Any], repr=False)
    limits: dict[str, float] = field(default_factory=dict[str, float])
    scorer: str | None = None

    @classmethod
    def of(cls, spec: EnvironmentDefinition) -> Origin:
        """The origin of an environment.

        Raises:
            InvalidEnvironment: Another process could not find its class.
            InvalidOption: An option is not plain data.
        """
        module, qualname, file = spec.cls.__module__, spec.cls.__qualname__, ""
        if "<locals>" in qualname:
            raise InvalidEnvironment(
                f"{module}.{qualname} is defined within a function, where no other process can find it: "
                "move it to the top of its module, or run it inline or in threads"
            )
        if module == "__main__" or module.startswith("envport_file_"):
            # The running script and a file given by its path cannot be imported by name.
            found = getattr(sys.modules.get(module), "__file__", None)
            if found is None:
                raise InvalidEnvironment(f"{qualname} is defined in no file, so no other process can find it")
            file = str(Path(found).resolve())
            # Use another name than `__main__`, as multiprocessing does, so that the script's main block does not run.
            module = _SCRIPT if module == "__main__" else module
        options, unshown = _plain(spec, spec.options), _plain(spec, spec.unshown_options)
        scorer = spec.scorer.reference if spec.scorer is not None else None
        return cls(spec.name, module, file, qualname, options, spec.fingerprint, unshown, dict(spec.limits), scorer)

    def data(self) -> dict[str, Any]:
        """The origin as plain data."""
        return asdict(self)

    def load(self) -> EnvironmentDefinition:
        """Load the environment and read its tools.

        Raises:
            ConfigurationError: The environment cannot be found, or has changed.
        """
        found: Any = _module_of(self.module, self.file) if self.file else importlib.import_module(self.module)
        for part in self.qualname.split("."):
            found = getattr(found, part)
        options, unshown = _read_options(found, self.options), _read_options(found, self.unshown_options)
        scorer = Scorer(self.scorer) if self.scorer is not None else None
        spec = EnvironmentDefinition(self.name, found, options, unshown, self.limits, scorer=scorer)
        if spec.fingerprint != self.fingerprint:
            raise ConfigurationError(
                f"environment {self.name!r} has other tools than when the gateway was started: restart the gateway"
            )
        return spec


def _module_of(name: str, file: str) -> ModuleType:
    found = importlib.util.spec_from_file_location(name, file)
    if found is None or found.loader is None:
        raise EnvironmentNotFound(f"there is no Python file {file}")
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module
    found.loader.exec_module(module)
    return module


def _plain(spec: EnvironmentDefinition, options: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return to_jsonable_python(dict(options))
    except PydanticSerializationError as error:
        raise InvalidOption(
            f"environment {spec.name!r} cannot be run in another process: an option is not plain data: {error}"
        ) from None


def _adapter(hint: Any) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(hint, config=ConfigDict(arbitrary_types_allowed=True))
    except PydanticUserError:
        # A data class or model has a configuration of its own.
        return TypeAdapter(hint)


def _read_options(cls: type[Environment], options: dict[str, Any]) -> dict[str, Any]:
    hints = get_type_hints(cls.__init__, include_extras=True) if inspect.isfunction(cls.__init__) else {}
    read: dict[str, Any] = {}
    for key, value in options.items():
        adapter = _adapter(hints.get(key, Any))
        try:
            # As JSON, so that strict models read a tuple from a list.
            read[key] = adapter.validate_json(to_json(value))
        except ValidationError:
            read[key] = value
    return read
