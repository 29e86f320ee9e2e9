"""A model behind a server with OpenAI's API, in a process of its own."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path


@contextlib.contextmanager
def model_server(words: Sequence[str], ready: str, **variables: str) -> Iterator[str]:
    """Run a server on a free port; gives the address of its API.

    Args:
        words: The command, without host and port; its program is beside this process's Python.
        ready: What it prints when it serves.
        variables: Environment variables beside this process's own.

    Raises:
        AssertionError: It ended before it served; the message is what it printed.
    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [str(Path(sys.executable).with_name(words[0])), *words[1:], "--host", "127.0.0.1", "--port", str(port)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", **variables},
    )
    assert process.stdout is not None
    log: list[str] = []
    # Somebody has to read on, or the server would wait for that.
    reading = threading.Thread(target=log.extend, args=(process.stdout,), daemon=True)
    try:
        for line in process.stdout:
            log.append(line)
            if ready in line:
                break
        else:
            raise AssertionError("".join(log))
        reading.start()
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait()
        if reading.is_alive():
            reading.join()
        process.stdout.close()
