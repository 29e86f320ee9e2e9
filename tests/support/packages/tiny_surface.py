"""A surface of a package of its own: it opens, plays and closes episodes over HTTP and over a WebSocket."""

from __future__ import annotations

from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from envport.episodes import EpisodeTable, OpenRequest
from envport.errors import EnvportError
from envport.surfaces import error_answer, surface_principal
from envport.types import Choice


def tiny(table: EpisodeTable, /) -> Starlette:
    async def opened(request: Request) -> JSONResponse:
        body = await request.json()
        owner = surface_principal(request.scope).name
        opening = await table.open(OpenRequest(body["environment"], owner, Choice(seed=body.get("seed"))))
        return JSONResponse({"id": opening.handle, "text": opening.observation.text})

    async def rewards(request: Request) -> JSONResponse:
        info = await table.info(request.path_params["handle"], surface_principal(request.scope).name)
        return JSONResponse({"status": info.status, "reward": info.reward})

    async def play(socket: WebSocket) -> None:
        owner = surface_principal(socket.scope).name
        await socket.accept()
        try:
            opening = await table.open(OpenRequest(socket.path_params["environment"], owner))
        except EnvportError as error:
            await socket.close(1013, error.code)
            return
        found = table.find(opening.handle, owner)
        await socket.send_json({"id": opening.handle, "text": opening.observation.text})
        try:
            while True:
                call: dict[str, Any] = await socket.receive_json()
                result = await table.call(found, call["tool"], call.get("arguments", {}))
                await socket.send_json({"text": result.observation.text, "reward": result.reward})
        except WebSocketDisconnect:
            await table.close(opening.handle, owner)

    return Starlette(
        routes=[
            Route("/episodes", opened, methods=["POST"]),
            Route("/episodes/{handle}", rewards),
            WebSocketRoute("/{environment}/ws", play),
        ],
        exception_handlers={EnvportError: error_answer},
    )
