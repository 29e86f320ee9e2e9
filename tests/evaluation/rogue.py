"""An agent that misbehaves, in the way that its first argument names."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

URL = os.environ["ENVPORT_MCP_URL"]
TOKEN = os.environ["ENVPORT_TOKEN"]
GATEWAY = re.sub(r"/episodes/.*", "", URL)


def ask(method: str, url: str, body: object = None) -> tuple[int, str]:
    data = json.dumps(body).encode() if body is not None else None
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json", "Accept": "application/json"}
    request = urllib.request.Request(url, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


def ignore() -> None:
    print("I know better than to use tools.")


def hang() -> None:
    time.sleep(3600)


def fail() -> None:
    print("something is wrong", file=sys.stderr)
    sys.exit(3)


def fork() -> None:
    """Leave processes behind that moved to sessions of their own and forgot their environment."""
    fifo = os.open(sys.argv[2], os.O_WRONLY)
    linger = "import os, time; os.fork(); os.setsid() if os.getpid() != os.getpgid(0) else None; time.sleep(3600)"
    for _ in range(3):
        subprocess.Popen([sys.executable, "-c", linger], pass_fds=[fifo], start_new_session=True, env={}, cwd="/")
    os.write(fifo, b"started")


def linger() -> None:
    fork()
    hang()


def neighbour() -> None:
    """Try to play somebody else's episode."""
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    print(json.dumps([ask("POST", url, call)[0] for url in Path(sys.argv[2]).read_text().split()]))


def control() -> None:
    """Try every route of the control plane."""
    handle = URL.removesuffix("/mcp").rpartition("/")[2]
    tries = [
        (method, f"{GATEWAY}{path.replace('{episode_id}', handle).replace('{name}', 'catch')}")
        for method, path in json.loads(Path(sys.argv[2]).read_text())
    ]
    print(json.dumps({f"{method} {url}": ask(method, url, {})[0] for method, url in tries}))


def tell() -> None:
    """Say everything that an agent is given."""
    files = {str(file): file.read_text() for file in Path("..").rglob("*") if file.is_file()}
    print(json.dumps({"variables": dict(os.environ), "words": sys.argv, "files": files}))


if __name__ == "__main__":
    globals()[sys.argv[1]]()
