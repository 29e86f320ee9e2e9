"""`envport serve --reload`: new episodes are of the new environment, and the others go on."""

from __future__ import annotations

import importlib
import os
import py_compile
import re
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import anyio.to_thread
import httpx2
import pytest
from command_line import Served, player, refused, text
from patience import patient
from slow import slow

from envport import Client
from envport.errors import AtCapacity, InvalidRequest, MissingExtra
from envport.types import OpenedEpisode

pytest.importorskip("watchfiles", reason="needs the extra 'reload'")

ONE = '''
from contextlib import contextmanager
from pathlib import Path

from envport import Environment, tool


class Speak(Environment):
    """Speaks."""

    runtime = "{runtime}"

    @contextmanager
    def prepare(self):
        yield "prepared"
        Path(__file__).with_name("ended").open("a").write("{word} ")

    def reset(self, *, seed, task):
        return "{word}"

    @tool
    def {tool}(self) -> str:
        """Says a word."""
        return "{word}"
'''


def one(word: str, tool: str = "say", runtime: str = "inline") -> str:
    return ONE.format(word=word, tool=tool, runtime=runtime)


def write(path: Path, source: str, *, at: int | None = None) -> None:
    """Write a file as editors do: the new one takes the place of the old one at once.

    Args:
        path: The file.
        source: Its text.
        at: When it seems to be written, in nanoseconds; now if not given.
    """
    draft = path.with_name("draft")
    draft.write_text(source)
    if at is not None:
        os.utime(draft, ns=(at, at))
    draft.replace(path)


async def until(holds: Callable[[], bool]) -> None:
    with anyio.fail_after(patient(20)):
        while not holds():  # noqa: ASYNC110
            await anyio.sleep(0.02)


async def reloaded(served: Served, times: int = 1) -> None:
    await until(lambda: served.log.count("was reloaded") >= times)


@pytest.mark.parametrize("runtime", ["process", *slow(["inline"])])
async def test_new_episodes_are_of_the_new_file_and_old_ones_go_on(runtime: str, tmp_path: Path) -> None:
    file = tmp_path / "speak.py"
    write(file, one("old", "say", runtime))
    py_compile.compile(str(file))
    with Served("./speak.py:Speak", "--reload", cwd=tmp_path) as served, Client(served.url) as control:
        shown = control.environment("speak")
        before = control.open("speak")
        async with player(f"{served.url}/environments/speak/mcp") as shared, player(before.mcp_url) as playing:
            assert text(await playing.call_tool("say", {})) == "old"
            # A file of the same size and time, for which Python would take the one that it has compiled.
            write(file, one("new", "say", runtime), at=file.stat().st_mtime_ns)
            await reloaded(served)
            assert control.open("speak").observation.text == "new"
            assert control.environment("speak").fingerprint == shown.fingerprint
            assert control.environment("speak").source_fingerprint != shown.source_fingerprint
            write(file, one("newest", "tell", runtime))
            await reloaded(served, 2)
            assert "its tools have changed" in served.log
            assert control.environment("speak").fingerprint != shown.fingerprint
            # At both addresses, what was opened before is what it was.
            assert text(await playing.call_tool("say", {})) == "old"
            assert [tool.name for tool in (await playing.list_tools()).tools] == ["say"]
            assert text(await shared.call_tool("say", {"episode_id": before.episode_id})) == "old"
            assert [tool.name for tool in (await shared.list_tools()).tools] == ["start_episode", "tell"]
            opened = control.open("speak")
            assert text(await shared.call_tool("tell", {"episode_id": opened.episode_id})) == "newest"
            with pytest.raises(Exception, match="Unknown tool: say"):
                await shared.call_tool("say", {"episode_id": opened.episode_id})
            with pytest.raises(InvalidRequest, match="has changed since the episode was opened"):
                control.reset(before.episode_id)
            assert control.episode(before.episode_id).status == "running"
        assert served.stop() == 0
        assert "Traceback" not in served.log


async def test_what_the_old_one_had_prepared_ends_with_its_last_episode(tmp_path: Path) -> None:
    file, ended = tmp_path / "speak.py", tmp_path / "ended"
    write(file, one("first"))
    with Served("./speak.py:Speak", "--reload", cwd=tmp_path) as served, Client(served.url) as control:
        write(file, one("old"))
        # Nobody plays the first one.
        await until(lambda: ended.exists() and ended.read_text() == "first ")
        before = control.open("speak")
        write(file, one("new"))
        await reloaded(served, 2)
        control.open("speak")
        assert ended.read_text() == "first "
        control.close_episode(before.episode_id)
        await until(lambda: ended.read_text() == "first old ")


async def test_a_file_with_a_mistake_keeps_the_old_one_and_says_why(tmp_path: Path) -> None:
    file = tmp_path / "speak.py"
    write(file, one("old"))
    with Served("./speak.py:Speak", "--reload", cwd=tmp_path) as served, Client(served.url) as control:
        for mistake, why in (
            ("class Speak(", r"not reloaded: \./speak\.py: '\(' was never closed"),
            (one("new") + "\nraise RuntimeError('no luck')\n", r"RuntimeError: no luck \(.*speak\.py, line \d+\)"),
            (one("new").replace("Speak(", "Spoke("), r"there is no 'Speak'; environments there: Spoke"),
            (one("new", runtime="nowhere"), r"Speak\.runtime is 'nowhere'; allowed"),
            (one("new").replace("def say(self)", "def say(self, what)"), r"say"),
        ):
            so_far = len(served.log)
            write(file, mistake)
            await until(lambda so_far=so_far: "is served as it was." in served.log[so_far:])
            said = served.log[so_far:]
            assert re.search(why, said), said
            assert "Traceback" not in said
            assert control.open("speak").observation.text == "old"
        write(file, one("mended"))
        await reloaded(served)
        assert control.open("speak").observation.text == "mended"


async def test_modules_of_one_s_own_and_the_options_of_a_file_are_loaded_again(tmp_path: Path) -> None:
    package = tmp_path / "deep_sea"
    package.mkdir()
    (package / "__init__.py").touch()
    write(package / "words.py", "WORD = 'old'\n")
    write(
        package / "environment.py",
        "from deep_sea.words import WORD\n"
        "from envport import Environment, tool\n\n\n"
        "class Speak(Environment):\n"
        '    """Speaks."""\n\n'
        "    def __init__(self, times: int = 1):\n"
        "        self.times = times\n\n"
        "    def reset(self, *, seed, task):\n"
        "        return WORD * self.times\n\n"
        "    @tool\n"
        "    def say(self) -> str:\n"
        '        """Say."""\n'
        "        return WORD\n",
    )
    table = '[environments.speak]\nreference = "deep_sea.environment:Speak"\noptions = {{ times = {} }}\n'
    write(tmp_path / "envport.toml", table.format(1))
    words = ("--reload", "--wait-seconds", "0")
    with Served(*words, cwd=tmp_path, PYTHONPATH=str(tmp_path)) as served, Client(served.url) as control:
        assert control.open("speak").observation.text == "old"
        write(package / "words.py", "WORD = 'new'\n")
        await reloaded(served)
        assert control.open("speak").observation.text == "new"
        write(tmp_path / "envport.toml", table.format(2))
        await reloaded(served, 2)
        assert control.open("speak").observation.text == "newnew"
        # What is written beside them is not watched.
        write(tmp_path / "notes.txt", "nothing")
        write(tmp_path / "envport.toml", table.format(3))
        await reloaded(served, 3)
        assert served.log.count("was reloaded") == 3
        write(tmp_path / "envport.toml", f"{table.format(3)}limits = {{ max-episodes = 1 }}\n")
        await reloaded(served, 4)
        with pytest.raises(AtCapacity, match="all 1 episodes of environment 'speak'"):
            control.open("speak")


async def test_who_waits_for_room_meanwhile_gets_the_new_one(tmp_path: Path) -> None:
    file = tmp_path / "speak.py"
    write(file, one("old"))
    words = ("--reload", "--max-episodes", "1", "--wait-seconds", f"{patient(20)}")
    with Served("./speak.py:Speak", *words, cwd=tmp_path) as served, Client(served.url) as control:
        before = control.open("speak")
        opened: list[OpenedEpisode] = []

        async def wait_for_room() -> None:
            opened.append(await anyio.to_thread.run_sync(control.open, "speak"))

        def waits() -> bool:
            return "envport_admission_waiting 1.0" in httpx2.get(f"{served.url}/metrics").text

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait_for_room)
            await until(waits)
            write(file, one("new"))
            await reloaded(served)
            control.close_episode(before.episode_id)
        assert opened[0].observation.text == "new"


async def test_only_what_the_changed_file_belongs_to_is_loaded_again(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    write(tmp_path / "above.py", one("old"))
    write(tmp_path / "below/speak.py", one("old"))
    references = ("above=./above.py:Speak", "below=./below/speak.py:Speak")
    with Served(*references, "--reload", cwd=tmp_path) as served, Client(served.url) as control:
        write(tmp_path / "above.py", one("new"))
        await reloaded(served)
        assert "environment above was reloaded" in served.log
        assert "environment below was reloaded" not in served.log
        assert [control.open(name).observation.text for name in ("above", "below")] == ["new", "old"]
        # The folder of both.
        write(tmp_path / "below/speak.py", one("new"))
        await reloaded(served, 3)
        assert [control.open(name).observation.text for name in ("above", "below")] == ["new", "new"]


async def test_a_session_keeps_its_episode_and_has_to_connect_again_for_a_new_one(tmp_path: Path) -> None:
    file = tmp_path / "speak.py"
    write(file, one("old"))
    with Served("./speak.py:Speak", "--reload", cwd=tmp_path) as served:
        address = f"{served.url}/environments/speak/mcp"
        async with player(address, mode="legacy") as before:
            await before.call_tool("start_episode", {})
            write(file, one("new", "tell"))
            await reloaded(served)
            assert text(await before.call_tool("say", {})) == "old"
            again = await before.call_tool("start_episode", {})
            assert again.is_error
            assert "has changed since you connected" in text(again)
        async with player(address, mode="legacy") as after:
            assert text(await after.call_tool("tell", {})).endswith("new")


async def test_a_new_one_that_cannot_be_run_keeps_the_old_one(tmp_path: Path) -> None:
    file = tmp_path / "speak.py"
    write(file, one("old"))
    with Served("./speak.py:Speak", "--reload", cwd=tmp_path) as served, Client(served.url) as control:
        write(file, one("new").replace('yield "prepared"', "raise OSError('no server')"))
        await until(lambda: "is served as it was." in served.log)
        assert "environment 'speak' cannot be run: OSError" in served.log
        assert control.open("speak").observation.text == "old"


def test_it_is_refused_where_it_cannot_work(tmp_path: Path) -> None:
    write(tmp_path / "speak.py", one("old"))
    words = ("serve", "./speak.py:Speak", "--reload", "--port", "0")
    assert "does not work with --runtime ray" in refused(
        *words, "--runtime", "ray", "--ray-address", "local", cwd=tmp_path
    )


def test_without_its_extra_it_says_which_one_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    monkeypatch.delitem(sys.modules, "envport.cli.reloading", raising=False)
    with pytest.raises(MissingExtra, match=r"--reload needs .* 'envport\[reload\]'"):
        importlib.import_module("envport.cli.reloading")
