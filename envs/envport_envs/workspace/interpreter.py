"""The interpreter behind the tool `python`. It runs in the sandbox, as source text, and belongs to the player's side.

Its argument is the folder to begin in. Requests come over descriptor 3, each with a null byte at its end. The exit code
goes to descriptor 4.
"""

from __future__ import annotations

import ast
import contextlib
import linecache
import os
import signal
import sys
import traceback
import types
from typing import Any

_REQUESTS, _ANSWERS = 3, 4


def serve() -> None:
    """Run one piece of code after another in one namespace."""
    # The player may have taken the folder away.
    with contextlib.suppress(OSError):
        os.chdir(sys.argv[1])
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    for end in (_REQUESTS, _ANSWERS):
        os.set_inheritable(end, False)
    number = 0
    while True:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        code = _request()
        number += 1
        failed = _run(code, f"<call {number}>", vars(module))
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os.write(_ANSWERS, b"1\n" if failed else b"0\n")


def _request() -> str:
    data = b""
    while not data.endswith(b"\0"):
        part = os.read(_REQUESTS, 65_536)
        if not part:
            os._exit(0)
        data += part
    return data[:-1].decode("utf-8", "replace")


def _run(code: str, name: str, space: dict[str, Any]) -> bool:
    """Run code, and show the value of its last line if that is an expression. Returns whether it failed."""
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        tree = ast.parse(code, name)
        last = ast.Interactive([tree.body.pop()]) if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, name, "exec"), space)
        if last is not None:
            exec(compile(last, name, "single"), space)
    except SystemExit:
        raise
    except BaseException as error:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        _show(error, name)
        return True
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return False


def _show(error: BaseException, name: str) -> None:
    """Print a traceback that begins in the player's code."""
    place = error.__traceback__
    while place is not None and place.tb_frame.f_code.co_filename != name:
        place = place.tb_next
    traceback.print_exception(type(error), error, place, file=sys.stderr)


if __name__ == "__main__":
    serve()
