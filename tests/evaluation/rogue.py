"""An agent that misbehaves, in the way that its first argument names."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import re
import signal
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


def assassin() -> None:
    """Kill whoever watches it, and leave processes behind."""
    fork()
    with contextlib.suppress(OSError):
        os.kill(os.getppid(), signal.SIGKILL)


def processes() -> list[Path]:
    """The command lines of all other processes that can be seen."""
    return [path for path in Path("/proc").glob("[0-9]*/cmdline") if path.parent.name != str(os.getpid())]


def spy() -> None:
    """Search the variables of all other processes for a word, which is given reversed."""
    found = 0
    for path in processes():
        with contextlib.suppress(OSError):
            found += sys.argv[2][::-1].encode() in (path.parent / "environ").read_bytes()
    print(json.dumps({"processes": len(processes()), "found": found}))


def look() -> None:
    """Say who it is, and what it sees of this machine: of the paths in a JSON list, and of its home."""
    home, paths = Path.home(), json.loads(sys.argv[2])
    written: list[str] = []
    for path in (*paths, "/proc/sys/kernel/core_pattern", "/usr/mine", __file__):
        with contextlib.suppress(OSError):
            os.close(os.open(path, os.O_WRONLY))
            written.append(path)
    for folder in (home, Path("/tmp"), Path("/dev/shm"), Path.cwd()):
        (folder / "mine").write_text("mine")
    told = {
        "seen": {path: Path(path).read_text() for path in paths if Path(path).exists()},
        "written": written,
        "home": {str(path.relative_to(home)): path.read_text() for path in home.rglob("*") if path.is_file()},
        "of_user": pwd.getpwuid(os.getuid()).pw_dir,
        "user": os.getuid(),
        "capabilities": sorted(set(re.findall(r"Cap...:\s*(\w+)", Path("/proc/self/status").read_text()))),
        "namespaces": {name: os.readlink(f"/proc/self/ns/{name}") for name in ("pid", "mnt", "ipc", "user", "net")},
        "descriptors": len(os.listdir("/proc/self/fd")),
    }
    print(json.dumps(told))


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
