"""Where an upstream server comes from: a command that is started for each episode, or an address."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from envport.errors import ConfigurationError, InvalidOption
from envport.program_sandbox import CERTIFICATES, ProgramSandbox, installation
from envport.sandboxing import importable, imported, interpreter
from envport_envs.mcp_servers.packages import run_by_npx

__all__ = ["FOLDER", "Address", "Command", "EpisodeFolders", "filled"]

FOLDER = "/workspace"
"""The working folder, as a server in a sandbox sees it. It is the same in each episode."""

_TMP = "/tmp"
_PYTHON = "{python}"
_INSTALLERS = ("uvx", "uv", "pipx", "bunx", "pnpx", "docker", "podman")
_OTHERWISE = "Or trust the server, and give sandbox=false"
_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True)
class EpisodeFolders:
    """The folders of one episode, on this machine.

    Attributes:
        root: The folder that holds them.
    """

    root: Path

    @classmethod
    def make(cls, within: str | None = None) -> EpisodeFolders:
        """New folders.

        Args:
            within: The folder to make them in; that of the system for temporary files if not given.
        """
        root = Path(tempfile.mkdtemp(prefix="envport-mcp-", dir=within))
        # Who runs in a sandbox may be another user.
        root.chmod(0o711)
        folders = cls(root)
        folders.work.mkdir()
        return folders

    def remove(self) -> None:
        """Remove them, as far as they can be removed."""
        shutil.rmtree(self.root, ignore_errors=True)

    @property
    def work(self) -> Path:
        """The working folder of the server, whose final state is scored."""
        return self.root / "work"

    @property
    def scratch(self) -> Path:
        """Its `/tmp` and home."""
        return self.root / "tmp"

    @property
    def settings(self) -> Path:
        """Its files in `/etc` that name users, if it is in a sandbox."""
        return self.root / "etc"

    @property
    def errors(self) -> Path:
        """What it writes to standard error."""
        return self.root / "stderr"

    @property
    def final(self) -> Path:
        """A copy of the working folder, for scoring."""
        return self.root / "final"


@dataclass(frozen=True)
class Command:
    """A server that is started for each episode.

    Attributes:
        words: The program and its arguments, with the placeholders `{seed}` and `{folder}`.
        variables: Names of this process's environment variables that it sees.
        sandbox: Whether it runs in a sandbox.
        network: Whether it has the network, if it is in a sandbox.
        reads: Files and folders that it may read, if it is in a sandbox.
        ends: Whether its end ends the episode as it is, and is no fault.
    """

    words: tuple[str, ...]
    variables: tuple[str, ...] = ()
    sandbox: bool = True
    network: bool = False
    reads: tuple[str, ...] = ()
    ends: bool = False

    @classmethod
    def parse(cls, text: str) -> Command:
        """Read a command line. What `npx` is to run is installed if it is not yet, and then run without it.

        Raises:
            ConfigurationError: There is no such program.
        """
        try:
            program, *arguments = shlex.split(text)
        except ValueError as error:
            raise ConfigurationError(f"mcp:{text!r} is not a command line: {error}") from None
        # The folder of an episode is another one.
        arguments = [os.path.abspath(word) if os.path.isfile(word) else word for word in arguments]
        if program == _PYTHON:
            return cls((os.path.abspath(sys.executable), *arguments))
        found = shutil.which(program)
        if found is None:
            raise ConfigurationError(f"mcp:{text!r}: there is no program {program!r} on the PATH")
        if os.path.basename(program) == "npx":
            return cls(tuple(run_by_npx(found, arguments)))
        return cls((os.path.abspath(found), *arguments))

    def require(self) -> None:
        """Check that it can be run as it says.

        Raises:
            ConfigurationError: The sandbox cannot be made, or the program needs what the sandbox forbids.
            InvalidOption: A variable is not set, or a path cannot be shown.
        """
        for name in self.variables:
            if name not in os.environ:
                raise InvalidOption(f"the variable {name} is to be passed to the server, but is not set")
        if not self.sandbox:
            return
        if (program := os.path.basename(self.words[0])) in _INSTALLERS:
            raise ConfigurationError(
                f"{program} installs or starts its server elsewhere, which the sandbox does not allow. Install the "
                f"server, and give the command that this installs. {_OTHERWISE}"
            )
        self._sandbox().require()

    def program(
        self, folders: EpisodeFolders, seed: int, secrets: Mapping[str, str]
    ) -> tuple[list[str], dict[str, str]]:
        """The words that start it, and its environment variables.

        Args:
            folders: The folders of the episode.
            seed: The seed of the episode.
            secrets: Further environment variables.
        """
        for folder in (folders.work, folders.scratch):
            folder.mkdir(exist_ok=True)
        home = _TMP if self.sandbox else str(folders.scratch)
        variables = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": home,
            "TMPDIR": home,
            "USER": "server",
            "LOGNAME": "server",
            "SHELL": "/bin/sh",
            "TERM": "dumb",
            "LANG": "C.UTF-8",
            **{name: os.environ[name] for name in (*CERTIFICATES, *self.variables) if name in os.environ},
            **secrets,
        }
        given = {"seed": str(seed), "folder": FOLDER if self.sandbox else str(folders.work)}
        words = [filled(word, given) for word in self.words]
        if self.sandbox:
            sandbox = self._sandbox()
            sandbox.write_settings(folders.settings)
            sandbox.hand_over(folders.work, folders.scratch, folders.settings)
            words = sandbox.words(words, {FOLDER: folders.work, _TMP: folders.scratch}, folders.settings, FOLDER)
        return words, variables

    def _sandbox(self) -> ProgramSandbox:
        return ProgramSandbox(
            "an MCP server",
            _OTHERWISE,
            name="server",
            home=_TMP,
            network=self.network,
            seen=self._seen(),
            reads=self.reads,
            own=(FOLDER, _TMP),
        )

    def _seen(self) -> Iterator[str]:
        program, *arguments = self.words
        yield from installation(program)
        if os.path.realpath(program) == os.path.realpath(sys.executable):
            yield from (*interpreter(), *importable(), *imported())
        for word in arguments:
            if os.path.isabs(word) and os.path.isfile(word):
                yield from (word, *installation(word))
        yield from (os.environ[name] for name in CERTIFICATES if os.path.isabs(os.environ.get(name, "")))


@dataclass(frozen=True)
class Address:
    """A server that is running already. Each episode has a session of its own there.

    Attributes:
        url: Its URL, with the placeholder `{seed}` and placeholders for secrets.
        headers: HTTP headers, with the same placeholders.
        variables: Names of this process's environment variables that placeholders may name.
        era: `legacy` to ask for a session first, as revisions up to 2025-11-25 have it; `auto` for the newest revision
            that both sides speak.
    """

    url: str
    headers: tuple[tuple[str, str], ...] = ()
    variables: tuple[str, ...] = ()
    era: str = "auto"

    def filled(self, seed: int, secrets: Mapping[str, str]) -> Address:
        """The same with the placeholders filled.

        Raises:
            InvalidOption: A placeholder names nothing.
        """
        named = {name: os.environ[name] for name in self.variables if name in os.environ}
        given = {"seed": str(seed), **named, **secrets}
        headers = tuple((name, filled(text, given, strict=True)) for name, text in self.headers)
        return replace(self, url=filled(self.url, given, strict=True), headers=headers)


def filled(text: str, given: Mapping[str, str], *, strict: bool = False) -> str:
    """Put values in the place of `{name}`.

    Args:
        text: The text.
        given: The values by name.
        strict: Whether a name without a value is refused; else it is left as it is.

    Raises:
        InvalidOption: A name has no value.
    """

    def value(found: re.Match[str]) -> str:
        if found[1] in given:
            return given[found[1]]
        if strict:
            raise InvalidOption(
                f"there is no value for {found[0]}: allowed are {{seed}}, secrets of the environment, and environment "
                "variables that the option variables names"
            )
        return found[0]

    return _PLACEHOLDER.sub(value, text)
