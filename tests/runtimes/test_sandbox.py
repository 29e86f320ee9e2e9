"""Environments that ask for a sandbox get out of it neither to the network nor to the disk."""

import os
import shutil
import socket
from pathlib import Path

import pytest
from opening import open_episode
from runtime_environments import Boxed, Greedy, Nosy
from runtimes import descendants, play, serving

from envport.errors import EpisodeFailed
from envport.registry import EnvironmentDefinition

BOXED = EnvironmentDefinition("boxed", Boxed)

needs_bubblewrap = pytest.mark.skipif(
    shutil.which("bwrap") is None, reason="bubblewrap is not installed (apt-get install bubblewrap)"
)


def left(paths: list[str]) -> list[str]:
    return [path for path in paths if Path(path).exists()]


@needs_bubblewrap
async def test_a_sandboxed_episode_reaches_neither_the_network_nor_the_disk():
    marks = [f"{folder}/envport-sandbox-mark" for folder in ("/tmp", "/var", Path(__file__).parent)]
    with socket.create_server(("127.0.0.1", 0)) as server:
        async with serving(BOXED) as episodes:
            one, other = [await open_episode(episodes, "boxed") for _ in range(2)]
            assert [await play(one, "write", path=path) for path in marks] == ["written", "OSError", "OSError"]
            assert await play(one, "connect", port=server.getsockname()[1]) != "connected"
            # Bubblewrap's own, the zygote, and the two episodes.
            assert int(await play(one, "processes")) <= 5
            with pytest.raises(EpisodeFailed, match="SIGSEGV"):
                await one.call("die", {})
            assert int(await play(other, "processes")) <= 4
    assert not left(marks)
    assert descendants(os.getpid()) == []


@needs_bubblewrap
async def test_memory_is_watched_in_a_sandbox_too():
    greedy = EnvironmentDefinition("greedy", Greedy)
    async with serving(greedy, memory_mb=64) as episodes:
        episode = await open_episode(episodes, "greedy")
        with pytest.raises(EpisodeFailed, match="more memory"):
            await episode.call("eat", {"megabytes": 128})


async def test_without_bubblewrap_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setenv("PATH", "")
    async with serving(BOXED) as episodes:
        with pytest.raises(EpisodeFailed):
            await open_episode(episodes, "boxed")
    assert "apt-get install bubblewrap" in caplog.text


@pytest.mark.parametrize("name", ["ENVPORT_TOKEN", "ENVPORT_SECRET", "OTEL_EXPORTER_OTLP_HEADERS"])
async def test_a_process_does_not_see_the_gateway_s_secrets(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("OF_THE_ENVIRONMENT", "kept")
    async with serving(EnvironmentDefinition("nosy", Nosy)) as episodes:
        episode = await open_episode(episodes, "nosy")
        assert await play(episode, "variable", name=name) == "None"
        assert await play(episode, "variable", name="OF_THE_ENVIRONMENT") == "kept"
        assert await play(episode, "variable", name="PYTHONPATH") == str(os.environ.get("PYTHONPATH"))
