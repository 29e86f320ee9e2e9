"""Error answers of the control plane.

Every error has the same body, `{"error": {"code", "message", ...}}`, and each error class has one HTTP status.
"""

from __future__ import annotations

import logging
import math
from typing import Any, cast

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

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
)

__all__ = ["add_error_handlers", "problem"]

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


def problem(error: EnvportError) -> JSONResponse:
    """The HTTP answer for an error."""
    status = next((_STATUS[cls] for cls in type(error).__mro__ if cls in _STATUS), 500)
    body: dict[str, Any] = {"code": error.code, "message": str(error)}
    headers: dict[str, str] = {}
    if isinstance(error, AtCapacity):
        body["retry_after"] = error.retry_after
        headers["Retry-After"] = str(math.ceil(error.retry_after))
    if isinstance(error, EpisodeFailed | EpisodeOver) and error.fault is not None:
        body["fault"] = error.fault
    if isinstance(error, Unauthenticated):
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, PermissionDenied):
        headers["WWW-Authenticate"] = 'Bearer error="insufficient_scope"'
    return JSONResponse({"error": body}, status, headers)


def add_error_handlers(app: FastAPI) -> None:
    """Make an application answer every error in this form."""
    app.add_exception_handler(EnvportError, _envport_error)
    app.add_exception_handler(RequestValidationError, _malformed)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _unexpected)


async def _envport_error(request: Request, error: Exception) -> JSONResponse:
    return problem(cast("EnvportError", error))


async def _malformed(request: Request, error: Exception) -> JSONResponse:
    problems: dict[str, list[str]] = {}
    for detail in cast("RequestValidationError", error).errors():
        field = str(detail["loc"][1]) if len(detail["loc"]) > 1 else "body"
        problems.setdefault(field, []).append(detail["msg"])
    # For a union, pydantic reports one problem for each member. Join them into one line.
    lines = [f"{field}: {' or '.join(dict.fromkeys(said))}" for field, said in problems.items()]
    body = {"code": "invalid_request", "message": "; ".join(lines)}
    return JSONResponse({"error": body}, 422)


async def _http_error(request: Request, error: Exception) -> JSONResponse:
    http = cast("HTTPException", error)
    body = {"code": "http", "message": f"{http.detail}: {request.method} {request.url.path}"}
    return JSONResponse({"error": body}, http.status_code, http.headers)


async def _unexpected(request: Request, error: Exception) -> JSONResponse:
    logger.exception("%s %s broke", request.method, request.url.path, exc_info=error)
    return JSONResponse({"error": {"code": "internal", "message": "The gateway broke; see its log."}}, 500)
