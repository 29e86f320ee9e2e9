"""An MCP server that keeps the stock of a shop in the file stock.json of its working folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

STOCK = Path("stock.json")
Count = Annotated[int, Field(ge=1, le=1000)]

server = MCPServer("my_server", instructions="Keep the stock of a shop.")


def _read() -> dict[str, int]:
    return json.loads(STOCK.read_text("utf-8")) if STOCK.exists() else {}


def _write(stock: dict[str, int]) -> None:
    STOCK.write_text(json.dumps(stock), "utf-8")


@server.tool()
def list_stock() -> str:
    """Says what is in stock."""
    return "\n".join(f"{name}: {count}" for name, count in sorted(_read().items())) or "The shop is empty."


@server.tool()
def add(name: str, count: Count) -> str:
    """Puts some of a thing in stock."""
    stock = _read()
    stock[name] = stock.get(name, 0) + count
    _write(stock)
    return f"{name}: {stock[name]}"


@server.tool()
def take(name: str, count: Count) -> str:
    """Takes some of a thing out of stock."""
    stock = _read()
    if stock.get(name, 0) < count:
        raise ToolError(f"There are {stock.get(name, 0)} of {name!r}, which is fewer than {count}.")
    stock[name] -= count
    if not stock[name]:
        del stock[name]
    _write(stock)
    return f"{name}: {stock.get(name, 0)}"


if __name__ == "__main__":
    server.run()
