"""Two gateways with a page in one process: prints what each of them serves at `/`."""

from __future__ import annotations

import asyncio
import json
import sys

import httpx2

from envport.app import Gateway
from envport.registry import load


async def title(gateway: Gateway) -> str:
    """What a browser gets: the page with these environments, or the plain page."""
    transport = httpx2.ASGITransport(app=gateway)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1", follow_redirects=True) as client:
        text = (await client.get("/", headers={"Accept": "text/html"})).text
    if "This is the plain page" in text:
        return "plain"
    return " ".join(name for name in ("counter", "catch") if f"/ui/environments/{name}" in text)


async def both() -> list[str]:
    """Two gateways beside each other, and the second alone when the first has stopped."""
    first, second = Gateway([load("counter")], page=True), Gateway([load("catch")], page=True)
    async with second.run():
        async with first.run():
            said = [await title(first), await title(second)]
        return [*said, await title(second)]


async def another() -> list[str]:
    """A gateway on another event loop of the same process."""
    gateway = Gateway([load("counter")], page=True)
    async with gateway.run():
        return [await title(gateway), await title(gateway)]


if __name__ == "__main__":
    before = "nicegui" in sys.modules
    found = [asyncio.run(both()), asyncio.run(another())]
    sys.stdout.write(json.dumps({"imported before": before, "found": found}))
