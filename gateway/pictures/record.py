"""Records the terminal picture of the front page: serve a game, and play it.

    python gateway/pictures/record.py [FILE]

The commands run as they are shown, in a terminal of their own; only the port is another one.
"""

from __future__ import annotations

import argparse
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import termios
import time
from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.terminal_theme import SVG_EXPORT_THEME
from rich.text import Text

COLUMNS = 108
SHOWN_PORT = "8000"
SERVE = "envport serve catch?rows=4 --store episodes"
PLAY = f"envport play catch --url http://127.0.0.1:{SHOWN_PORT} --seed 3"
QUESTION = "direction (1 left, 2 stay, 3 right): "
# The ball falls in the first column, the paddle begins in the third.
MOVES = ("1", "1", "2")
# What moves the cursor or asks the terminal for something; colours end with an m.
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-ln-z]|\r|\x07")
FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
SECONDS = 60.0


@dataclass
class Terminal:
    """A command in a terminal, and what it has written so far.

    Args:
        words: The command line.
        seconds: How long it may stay silent.
        variables: Further environment variables.
        folder: Where it runs.
    """

    words: Sequence[str]
    seconds: float
    variables: dict[str, str]
    folder: str
    text: str = ""

    def __post_init__(self) -> None:
        self._end, end = pty.openpty()
        # Or what is typed would be shown twice, where the command has line editing.
        attributes = termios.tcgetattr(end)
        attributes[3] &= ~termios.ECHO
        termios.tcsetattr(end, termios.TCSANOW, attributes)
        self._process = subprocess.Popen(
            self.words,
            stdin=end,
            stdout=end,
            stderr=end,
            env={**os.environ, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS), **self.variables},
            cwd=self.folder,
            start_new_session=True,
        )
        os.close(end)

    def until(self, shown: str) -> None:
        """Wait until it has written a text for one more time; `""` waits for its end."""
        before = self.text.count(shown) if shown else 0
        deadline = time.monotonic() + self.seconds
        while not shown or self.text.count(shown) == before:
            ready, _, _ = select.select([self._end], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError(f"{self.words} did not write {shown!r}: {self.text}")
            try:
                self.text += os.read(self._end, 65536).decode()
            except OSError:
                # Linux says so when the other side has closed.
                if shown:
                    raise EOFError(f"{self.words} ended without {shown!r}: {self.text}") from None
                break

    def type(self, line: str) -> None:
        """Type a line."""
        self.text += f"{line}\n"
        os.write(self._end, f"{line}\n".encode())

    def stop(self) -> None:
        """Interrupt it, as Ctrl-C does, and wait for its end."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        self._process.wait(self.seconds)
        os.close(self._end)


def free_port() -> int:
    """A port of this machine that nobody uses."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def session(envport: str = "envport", seconds: float = SECONDS) -> str:
    """Play the session of the picture; returns what a terminal shows, with its colours.

    Args:
        envport: The program to run.
        seconds: How long a command may stay silent.
    """
    port = str(free_port())
    url = f"http://127.0.0.1:{port}"
    # As it is called in messages: by its name, if it is found by that.
    variables = {"PATH": f"{Path(envport).parent}{os.pathsep}{os.environ['PATH']}"}
    serve = [envport, *SERVE.split()[1:], "--port", port, "--drain-seconds", "0"]
    play = [envport, *PLAY.replace(SHOWN_PORT, port).split()[1:]]
    with TemporaryDirectory() as folder:
        gateway = Terminal(serve, seconds, variables, folder)
        try:
            gateway.until("Stop with Ctrl-C.")
            game = Terminal(play, seconds, variables, folder)
            for move in MOVES:
                game.until(QUESTION)
                game.type(move)
            game.until("")
            game.stop()
        finally:
            gateway.stop()
    shown = gateway.text.replace(f"{folder}/", "")
    text = f"{prompted(SERVE)}\n{shown.rstrip()}\n\n{prompted(PLAY)}\n{game.text.rstrip()}\n"
    return CONTROL.sub("", text).replace(f" NAME --url {url}", " NAME").replace(f":{port}", f":{SHOWN_PORT}")


def prompted(line: str) -> str:
    """A command as it is typed at a prompt."""
    return f"\x1b[1;32m$\x1b[0m \x1b[1m{line}\x1b[0m"


def picture(text: str) -> str:
    """What a terminal shows, as SVG; it loads nothing, and the same text gives the same picture."""
    console = Console(record=True, width=COLUMNS, file=StringIO())
    console.print(Text.from_ansi(text), soft_wrap=False)
    svg = console.export_svg(title="envport", theme=SVG_EXPORT_THEME, unique_id="terminal")
    return FONT.sub("", svg)


def main(arguments: list[str] | None = None) -> None:
    """Write the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path, default=Path(__file__).with_name("terminal.svg"))
    options = parser.parse_args(arguments)
    options.file.write_text(picture(session(str(Path(sys.executable).with_name("envport")))))


if __name__ == "__main__":
    main()
