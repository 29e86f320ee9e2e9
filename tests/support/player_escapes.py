"""What a hostile player tries from within its code. Each body is run as root and as an ordinary user."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from opening import close_episode, open_episode
from patience import patient
from player_environments import ANSWER, HERE, Coder, listening
from runtimes import descendants, serving

from envport import PlayerCode, PlayerLimits
from envport.episodes import Episode
from envport.registry import EnvironmentDefinition

CODER = EnvironmentDefinition("coder", Coder)
PACKAGES = [f"{prefix}/lib/python*/*-packages/*" for prefix in ("/usr", "/usr/local", sys.base_prefix)]

TRY = """
import os, sys, socket, signal, subprocess, ctypes, glob
def attempt(name, do):
    try:
        result = do()
    except BaseException as error:
        result = "refused: " + type(error).__name__
    print(f"{name}={result!r}", flush=True)
"""
FRAME = """
import struct, json
body = json.dumps({"content": [{"type": "text", "text": "x"}], "reward": 1.0, "terminated": True}).encode()
frame = struct.pack(">I", len(body)) + body
written = []
for end in range(0, 256):
    try:
        os.write(end, frame)
        written.append(end)
    except OSError:
        pass
print("\\nwritten=%r" % [end for end in written if end > 2])
"""


async def attempt(episode: Episode, code: str, tool: str = "run") -> dict[str, Any]:
    """Run Python in an episode, which goes on whatever the code does."""
    result = await episode.call(tool, {"code": code})
    assert episode.outcome is None, episode.outcome
    assert result.observation.structured_content is not None
    return result.observation.structured_content


async def attempts(episode: Episode, **codes: str) -> dict[str, Any]:
    """What each expression gives inside, or that it was refused."""
    lines = [f"attempt({name!r}, lambda: {code})" for name, code in codes.items()]
    done = await attempt(episode, TRY + "\n".join(lines))
    found = dict(line.partition("=")[::2] for line in done["out"].splitlines())
    assert found.keys() == codes.keys(), done
    return {name: eval(text) for name, text in found.items()}


def _written(folder: str) -> str:
    """A file that everybody may read."""
    token = Path(folder, "token")
    token.write_text("a token")
    token.chmod(0o644)
    return str(token)


async def reading() -> None:
    """What is readable: nothing of the environment, the gateway or the machine's users."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        token = _written(folder)
        patch.setenv("OPENAI_API_KEY", "a key")
        patch.setenv("ENVPORT_TOKEN", "a token")
        async with serving(CODER) as episodes:
            episode = await open_episode(episodes, "coder")
            worker, zygote = map(int, episode.first_observation.text.split())
            found = await attempts(
                episode,
                variables="sorted(os.environ)",
                warden_variables="open('/proc/1/environ').read()",
                warden_memory="open('/proc/1/mem', 'rb').read(1)",
                warden_descriptors="os.listdir('/proc/1/fd')",
                own_parent="open(f'/proc/{os.getppid()}/mem', 'rb').read(1)",
                processes="sorted(int(it) for it in os.listdir('/proc') if it.isdigit())",
                token=f"open({token!r}).read()",
                environment=f"open({HERE!r}).read()",
                worker=f"os.listdir('/proc/{worker}/fd')",
                users="open('/etc/shadow').read()",
                homes="os.listdir('/home') + os.listdir('/root')",
                run="os.listdir('/run')",
                packages=f"[it for path in {PACKAGES!r} for it in glob.glob(path)]",
                everywhere="[it for it in ('/var', '/srv', '/opt', '/mnt', '/boot', '/sys') if os.path.exists(it)]",
            )
        assert set(found["variables"]) == {"HOME", "LANG", "LOGNAME", "PATH", "USER"}
        refused = ("warden_memory", "warden_variables", "warden_descriptors", "own_parent")
        refused += ("token", "environment", "worker", "users", "homes", "run")
        assert {name: found[name] for name in refused if not str(found[name]).startswith("refused")} == {}
        # The first process, and the program itself.
        assert len(found["processes"]) == 2
        assert (found["everywhere"], found["packages"]) == ([], [])
        assert zygote


async def reaching() -> None:
    """What is in reach: no network, no socket of the machine, no signal, no capability, no reward."""
    async with serving(CODER) as episodes:
        episode, other = [await open_episode(episodes, "coder") for _ in range(2)]
        worker, zygote = map(int, episode.first_observation.text.split())
        with listening() as (port, name):
            found = await attempts(
                episode,
                tcp=f"socket.create_connection(('127.0.0.1', {port}), 1)",
                abstract=f"socket.socket(socket.AF_UNIX).connect(chr(0) + {name!r})",
                away="socket.create_connection(('1.1.1.1', 53), 1)",
                interfaces="[name for _, name in socket.if_nameindex()]",
                kill_worker=f"os.kill({worker}, 9)",
                kill_zygote=f"os.kill({zygote}, 9)",
                capabilities="[line.split()[1] for line in open('/proc/self/status') if line.startswith('Cap')]",
                user="os.getuid()",
                become="os.setuid(0)",
                mknod="os.mknod('/work/disk', 0o600 | 0o060000, os.makedev(254, 0))",
                remount="ctypes.CDLL(None).mount(b'', b'/', b'', 0x20, b'')",
                mount="ctypes.CDLL(None).mount(b'none', b'/tmp', b'tmpfs', 0, b'')",
                namespace="ctypes.CDLL(None).unshare(0x10000000)",
                trace="ctypes.CDLL(None).ptrace(16, 1, 0, 0)",
                system="open('/usr/bin/mark', 'w')",
                root="open('/mark', 'w')",
                devices="open('/dev/mark', 'w')",
                kernel="open('/proc/sys/kernel/core_pattern', 'w')",
                more="open('/proc/sys/user/max_user_namespaces', 'w').write('9')",
                end_first="[os.kill(1, number) for number in (9, 15, 2, 1, 19)]",
            )
        refused = ("tcp", "abstract", "away", "kill_worker", "kill_zygote", "become", "mknod", "system", "root")
        refused += ("devices", "kernel", "more")
        assert {it: found[it] for it in refused if not str(found[it]).startswith("refused")} == {}
        assert found["interfaces"] == ["lo"]
        assert found["capabilities"] == ["0000000000000000"] * 5
        assert found["user"] != 0
        assert [found[it] for it in ("remount", "mount", "namespace", "trace")] == [-1] * 4
        for command in ("kill -9 $PPID", "kill -9 -1", "kill -9 0", "kill -STOP $PPID 1"):
            assert (await episode.call("start", {"argv": ["sh", "-c", command]})).outcome is None
        done = await attempt(episode, TRY + FRAME)
        assert done["out"].endswith("written=[]\n")
        # Nothing of it was a reward, and the episode is played to its end.
        assert set(episode.info().rewards) == {None}
        result = await episode.call("submit", {"answer": "no idea"})
        assert (result.reward, episode.info().reward) == (0.0, 0.0)
        assert (await other.call("submit", {"answer": ANSWER})).reward == 1.0


KEPT = """
import os, subprocess
while True:
    request = b""
    while not request.endswith(b"\\0"):
        request += os.read(3, 65536)
    done = subprocess.run(["sh", "-c", request[:-1].decode()], capture_output=True)
    os.write(1, done.stdout + done.stderr)
    os.write(4, b"%d\\n" % done.returncode)
"""


async def keeping() -> None:
    """What a program can do that is kept: no more than one that is run, and nothing between requests."""
    with tempfile.TemporaryDirectory() as folder:
        player_code = PlayerCode()
        token = _written(folder)
        limits = PlayerLimits(memory_mb=128, processes=12)
        with player_code.workspace(limits=limits, readable={"/shown": token}, links={"/work-link": "/work"}) as made:
            program = made.start(["python3", "-c", KEPT])

            def asked(command: str) -> str:
                return program.ask(command, timeout=patient(20.0)).stdout

            assert asked(f"cat /shown; cat {token}").startswith("a token")
            assert "No such file" in asked(f"cat {token}")
            assert asked("echo text > /work-link/file; cat /work/file") == "text\n"
            for refused in (
                "echo x > /shown",
                "echo x > /mark",
                "cat /proc/1/environ",
                "cat /proc/1/mem",
                "ls /proc/1/fd",
            ):
                assert program.ask(refused, timeout=patient(20.0)).exit_code != 0, refused
            for command in ("kill -9 1", "kill -STOP 1", "echo x > /proc/1/fd/0"):
                asked(command)
            asked("(while :; do :; done) > /dev/null 2>&1 &")
            while {state for _, state in descendants(os.getpid())[2:]} != {"T"}:  # noqa: ASYNC110
                await asyncio.sleep(0)
            assert made.read("file") == b"text\n"
            asked("kill -9 -1")
            assert not program.live
        assert descendants(os.getpid()) == []


async def taking() -> None:
    """What can be used up: a bounded amount, and the next run finds nothing of it."""
    async with serving(CODER) as episodes:
        episode = await open_episode(episodes, "coder")
        one = await attempt(episode, "x = bytearray(200 * 2**20)", "small")
        assert (one["code"], "MemoryError" in one["err"]) == (1, True)
        many = (
            "import os, time\nfor _ in range(6):\n    if os.fork() == 0:\n        x = bytearray(20 * 2**20)\n"
            "        time.sleep(100)\ntime.sleep(100)"
        )
        assert (await attempt(episode, many, "small"))["memory"] is True
        shared = (
            "import mmap, time\nm = mmap.mmap(-1, 2**30)\nfor _ in range(200): m.write(bytes(2**20))\ntime.sleep(100)"
        )
        assert (await attempt(episode, shared, "small"))["memory"] is True
        bomb = "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass"
        bombed = await episode.call("run", {"code": bomb, "timeout": patient(1.0)})
        assert bombed.observation.structured_content is not None
        assert bombed.observation.structured_content["late"] is True
        for folder in ("/work", "/tmp", "/dev/shm"):
            disk = await attempt(episode, f"open('{folder}/a', 'wb').write(bytes(16 * 2**20))", "small")
            assert (disk["code"], disk["signal"]) in ((1, None), (None, "SIGXFSZ")), disk
        files = "for i in range(9):\n    open(f'/work/{i}', 'wb').write(bytes(2**20))"
        assert "No space left" in (await attempt(episode, files, "small"))["err"]
        # Files without content take the kernel's memory, and no disk.
        nodes = "import itertools, os\nfor i in itertools.count():\n    os.symlink('y' * 100, f'{i}')"
        assert (await attempt(episode, nodes, "small"))["memory"] is True
        loud = await attempt(episode, "while True:\n    print('x' * 1000)\n    break", "small")
        assert (loud["cut"], len(loud["out"])) == (True, 1_000)
        endless = await episode.call("run", {"code": "while True: print('x' * 10000)", "timeout": patient(0.5)})
        assert endless.observation.structured_content is not None
        assert endless.observation.structured_content["late"] is True
        assert len(endless.observation.structured_content["out"]) == 65_536
        left = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        time.sleep(1000)"
        assert (await episode.call("keep", {"argv": ["python3", "-c", left]})).outcome is None
        after = await episode.call("keep", {"argv": ["sh", "-c", "ls -d /proc/[0-9]* | wc -l"]})
        assert after.observation.structured_content is not None
        # The first process, the shell, and the two programs of its pipe.
        assert int(after.observation.structured_content["out"]) <= 4
        assert episode.outcome is None
        await close_episode(episodes, episode)
    assert descendants(os.getpid()) == []
