"""Error answers of the control plane.

Every error has the same body, `{"error": {"code", "message", ...}}`, and each error class has one HTTP status.
"""

from __future__ import annotations

import logging
import math
from typing import Any, cast

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from pydantic.json_schema import models_json_schema
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from envport.episodes import field_at, told_of_fields
from envport.errors import (
    AtCapacity,
    CallerLeft,
    EnvportError,
    EpisodeFailed,
    EpisodeOver,
    PermissionDenied,
    RequestError,
    Unauthenticated,
    UnknownEnvironment,
    UnknownEpisode,
    UnknownTask,
    error_fields,
)
from envport.types import FaultOwner

__all__ = ["ANYWHERE", "Problem", "add_error_handlers", "describe_refusals", "problem", "refusals"]

logger = logging.getLogger(__name__)

_STATUS: dict[type[EnvportError], int] = {
    Unauthenticated: 401,
    PermissionDenied: 403,
    UnknownEnvironment: 404,
    UnknownEpisode: 404,
    UnknownTask: 404,
    EpisodeOver: 409,
    RequestError: 422,
    AtCapacity: 503,
    EpisodeFailed: 502,
    # Only the access log shows this. nginx uses the same number.
    CallerLeft: 499,
}


class ProblemDetail(BaseModel):
    """What went wrong."""

    code: str = Field(description="Code of the error, such as `unknown_episode`.")
    message: str = Field(description="What was wrong and what is allowed, for people to read.")
    retry_after: float | None = Field(None, description="Seconds to wait before trying again. With 503 only.")
    fault: FaultOwner | None = Field(None, description="Who owns the fault that ended the episode.")
    reason: str | None = Field(None, description="Why the episode ended, with `fault`.")


class Problem(BaseModel):
    """The body of an answer to a request that could not be carried out."""

    error: ProblemDetail


def _text(description: str) -> dict[str, Any]:
    return {"description": description, "content": {"text/plain": {"schema": {"type": "string"}}}}


_DESCRIPTIONS: dict[int, str] = {
    401: "No valid token.",
    403: "The token's scopes do not cover the request, or a web page of another origin sent it.",
    404: "There is no such environment, split, task or episode, or the episode is another principal's.",
    409: "The episode has ended.",
    422: "A field is malformed, or the environment refuses the task.",
    502: "The environment broke, or the gateway was shut down. Never to be scored as a reward of zero.",
    503: "There is no room now, the episode is being put back after a restart, or the trajectory store does not "
    "answer; `Retry-After` says when to try again.",
}

_REFERENCE = "#/components/schemas/{model}"


def _json(status: int) -> dict[str, Any]:
    # Not FastAPI's `model`: that would take the media type of the route's good answer.
    schema = {"$ref": _REFERENCE.format(model=Problem.__name__)}
    return {"description": _DESCRIPTIONS[status], "content": {"application/json": {"schema": schema}}}


ANYWHERE: dict[int | str, dict[str, Any]] = {
    400: _text("The request is malformed, such as a header that is there twice."),
    401: _json(401),
    # A page of a foreign origin gets text.
    403: {**_json(403), "content": _json(403)["content"] | _text("")["content"]},
    421: _text("The gateway does not answer for that `Host`."),
}
"""The refusals that every route gives, for its OpenAPI description."""


def refusals(*errors: type[EnvportError], body: bool = False) -> dict[int | str, dict[str, Any]]:
    """The refusals of a route, for its OpenAPI description.

    Args:
        *errors: The errors that it answers, in addition to those that every route gives.
        body: Whether the route takes a body.
    """
    said: dict[int | str, dict[str, Any]] = {}
    for status in sorted({_status(cls) for cls in errors}):
        said[status] = _json(status)
    if body:
        said[413] = _text("The body is too large.")
    return said


def describe_refusals(schema: dict[str, Any]) -> dict[str, Any]:
    """Complete an OpenAPI description: with our form of refusals, and without the one that FastAPI adds."""
    for path in schema["paths"].values():
        for operation in path.values():
            if "HTTPValidationError" in str(operation["responses"].get("422")):
                del operation["responses"]["422"]
    schemas = schema["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas.update(models_json_schema([(Problem, "serialization")], ref_template=_REFERENCE)[1]["$defs"])
    return schema


def _status(cls: type[EnvportError]) -> int:
    return next((_STATUS[base] for base in cls.__mro__ if base in _STATUS), 500)


def problem(error: EnvportError) -> JSONResponse:
    """The HTTP answer for an error."""
    status = _status(type(error))
    headers: dict[str, str] = {}
    if isinstance(error, AtCapacity):
        headers["Retry-After"] = str(math.ceil(error.retry_after))
    if isinstance(error, Unauthenticated):
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, PermissionDenied):
        headers["WWW-Authenticate"] = 'Bearer error="insufficient_scope"'
    return JSONResponse({"error": error_fields(error)}, status, headers)


def add_error_handlers(app: FastAPI) -> None:
    """Make an application answer every error in this form."""
    app.add_exception_handler(EnvportError, _envport_error)
    app.add_exception_handler(RequestValidationError, _malformed)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _unexpected)


async def _envport_error(request: Request, error: Exception) -> JSONResponse:
    return problem(cast("EnvportError", error))


async def _malformed(request: Request, error: Exception) -> JSONResponse:
    details = cast("RequestValidationError", error).errors()
    # The first part says where the fields are: in the body, or in the path.
    said = ((field_at(detail["loc"][1:]) or "body", detail["msg"]) for detail in details)
    body = {"code": "invalid_request", "message": told_of_fields(said)}
    return JSONResponse({"error": body}, 422)


async def _http_error(request: Request, error: Exception) -> JSONResponse:
    http = cast("HTTPException", error)
    body = {"code": "http", "message": f"{http.detail}: {request.method} {request.url.path}"}
    return JSONResponse({"error": body}, http.status_code, http.headers)


async def _unexpected(request: Request, error: Exception) -> JSONResponse:
    logger.exception("%s %s broke", request.method, request.url.path, exc_info=error)
    return JSONResponse({"error": {"code": "internal", "message": "The gateway broke; see its log."}}, 500)
