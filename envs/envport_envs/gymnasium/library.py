"""The extra `gymnasium`, and the environments that are registered with it."""

from __future__ import annotations

import difflib
import inspect
import os
from collections.abc import Mapping
from importlib import import_module
from typing import Any, cast, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic_core import to_json

from envport.errors import ConfigurationError, EnvironmentNotFound, InvalidOption, MissingExtra

__all__ = ["gym", "made", "numpy", "registered", "rendering_modes"]

# Pictures are drawn without a screen.
os.environ.setdefault("SDL_VIDEODRIVER", "dummy")

_REGISTERING = {"MiniGrid-": "minigrid", "BabyAI-": "minigrid", "ALE/": "ale_py"}
# ale-py has an extra of its own, because of its licence (GPL-2).
_EXTRAS = {"minigrid": "gymnasium", "ale_py": "ale"}
_OWN = {
    "id": "it is what follows gymnasium:",
    "render_mode": "use the option render",
    "max_episode_steps": "use the option max_steps",
    "disable_env_checker": "envport check is the checker here",
    "vectorization_mode": "an episode is of one environment",
}


def _imported(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtra("References with gymnasium:", "gymnasium") from error


gym = _imported("gymnasium")
numpy = _imported("numpy")


def registered(name: str) -> Any:
    """What is registered under an environment's id. Imports the package that registers it, where that is known.

    Args:
        name: The id, such as `FrozenLake-v1` or `ALE/Pong-v5`; `module:id` imports the module first.

    Raises:
        EnvironmentNotFound: There is no such id; the message has the nearest ones.
        MissingExtra: The package that registers it is not installed.
    """
    module, _, known = name.rpartition(":")
    if module:
        _import_own(name, module)
    for beginning, package in _REGISTERING.items():
        if known.startswith(beginning):
            _register(name, package)
    try:
        return gym.spec(known)
    except gym.error.Error as error:
        raise EnvironmentNotFound(f"gymnasium:{name}: {' '.join(str(error).split())}{_nearest(known)}") from None


def _import_own(name: str, module: str) -> None:
    try:
        import_module(module)
    except (ImportError, ValueError, TypeError) as error:
        raise EnvironmentNotFound(f"gymnasium:{name}: the module {module!r} cannot be imported: {error}") from None


def _register(name: str, module: str) -> None:
    try:
        import_module(module)
    except ImportError:
        raise MissingExtra(f"gymnasium:{name}", _EXTRAS[module]) from None


def _nearest(name: str) -> str:
    near = difflib.get_close_matches(name, list(gym.registry), 4, 0.6)
    return f" Registered and near: {', '.join(near)}." if near else ""


def made(name: str, arguments: Mapping[str, Any], render_mode: str | None, max_steps: int | None) -> Any:
    """Make an environment.

    Args:
        name: Its id.
        arguments: Arguments of its class, as plain data.
        render_mode: How it renders; `None` for not at all.
        max_steps: The number of steps after which it is truncated; `None` for its own.

    Raises:
        InvalidOption: The environment does not take these arguments.
        ConfigurationError: It cannot be made, for example because a package is missing.
    """
    spec = registered(name)
    given = _checked(name, spec, arguments) | _rendering(name, spec, render_mode)
    try:
        return gym.make(spec.id, max_episode_steps=max_steps, disable_env_checker=True, **given)
    except gym.error.Error as error:
        raise ConfigurationError(f"gymnasium:{name} cannot be made: {error}") from error
    except Exception as error:
        why = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        if not arguments:
            raise ConfigurationError(f"gymnasium:{name} cannot be made: {why}") from error
        raise InvalidOption(f"gymnasium:{name} refuses the arguments {dict(arguments)}: {why}") from error


def _rendering(name: str, spec: Any, mode: str | None) -> dict[str, str]:
    if mode is None:
        return {}
    modes = rendering_modes(spec)
    if mode not in modes:
        raise InvalidOption(f"gymnasium:{name} has no rendering as {mode}; it has: {', '.join(modes) or 'none'}")
    return {"render_mode": mode}


def rendering_modes(spec: Any) -> list[str]:
    """The ways in which an environment can render for a player."""
    modes: list[str] = getattr(_creator(spec), "metadata", {}).get("render_modes", [])
    return [mode for mode in modes if mode in ("ansi", "rgb_array")]


def _creator(spec: Any) -> Any:
    if callable(spec.entry_point):
        return spec.entry_point
    try:
        return gym.envs.registration.load_env_creator(spec.entry_point)
    except (gym.error.Error, ImportError, AttributeError) as error:
        raise ConfigurationError(f"gymnasium:{spec.id} cannot be imported: {error}") from error


def _checked(name: str, spec: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments with the types that the class declares, by its hints or by its defaults."""
    creator = _creator(spec)
    parameters = inspect.signature(creator).parameters
    takes_any = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())
    named = [key for key in parameters if key not in _OWN and parameters[key].kind is not inspect.Parameter.VAR_KEYWORD]
    for key in arguments:
        if key in _OWN:
            raise InvalidOption(f"gymnasium:{name}: {key!r} cannot be among the arguments: {_OWN[key]}")
        if key not in named and not takes_any:
            raise InvalidOption(
                f"gymnasium:{name} has no argument {key!r}; its arguments are: {', '.join(named) or 'none'}"
            )
    hints = _hints(creator)
    checked = dict(arguments)
    for key in [key for key in arguments if key in named]:
        checked[key] = _typed(f"gymnasium:{name}: argument {key!r}", arguments[key], hints.get(key), parameters[key])
    return checked


def _hints(creator: Any) -> dict[str, Any]:
    try:
        return get_type_hints(creator.__init__ if inspect.isclass(creator) else creator)
    except (NameError, TypeError, AttributeError):
        return {}


def _typed(where: str, value: Any, hint: Any, parameter: inspect.Parameter) -> Any:
    if hint is None and parameter.default not in (None, inspect.Parameter.empty):
        hint = cast("Any", type(parameter.default))
    if hint is None:
        return value
    try:
        return TypeAdapter(hint, config=ConfigDict(arbitrary_types_allowed=True)).validate_json(
            to_json(value), strict=True
        )
    except PydanticUserError:
        return value
    except ValidationError as error:
        why = error.errors(include_url=False)[0]["msg"]
        wanted = getattr(hint, "__name__", None) if isinstance(hint, type) else str(hint)
        raise InvalidOption(f"{where} is {value!r}; it has to be {wanted} ({why})") from None
