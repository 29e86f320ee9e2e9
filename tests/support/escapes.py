"""Attempts to get out of a sandbox, and to take more than is allowed. Each is run as root and as an ordinary user."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import socket
import sys
import tempfile
from pathlib import Path

import anyio
import pytest
from opening import close_episode, open_episode
from patience import patient
from runtime_environments import Free, Prisoner
from runtimes import descendants, serving
from users import NOBODY

from envport.episodes import Episode, Episodes
from envport.errors import ConfigurationError, EpisodeFailed, EpisodeOver
from envport.registry import EnvironmentDefinition
from envport.runtimes import runtime_for

_libc = ctypes.CDLL(None)
PRISONER = EnvironmentDefinition("prisoner", Prisoner)

BOMB = (
    "import os, signal\npids = []\ntry:\n    for _ in range(200):\n        pid = os.fork()\n"
    "        if pid == 0:\n            signal.pause()\n        pids.append(pid)\n"
    "except BlockingIOError:\n    pass\n"
    "for pid in pids:\n    os.kill(pid, 9)\nfor pid in pids:\n    os.waitpid(pid, 0)\nresult = len(pids)"
)

LIBC = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def do(name, *arguments):
    if getattr(libc, name)(*arguments) < 0:
        raise OSError(ctypes.get_errno(), name)
"""
SHELL = """
import subprocess
def shell(text):
    done = subprocess.run(text, shell=True, capture_output=True, text=True, timeout=60)
    return done.stdout if done.returncode == 0 else "refused"
"""


async def attempt(episode: Episode, code: str) -> str:
    """What an episode's attempt gives."""
    result = await episode.call("attempt", {"code": code})
    assert result.observation.text is not None
    return result.observation.text


async def from_within() -> None:
    """One episode against the machine, the gateway, the zygote and another episode."""
    variables = {"OPENAI_API_KEY": "a key", "ENVPORT_TOKEN": "a token", "OF_THE_ENVIRONMENT": "named"}
    with tempfile.NamedTemporaryFile() as secret, pytest.MonkeyPatch.context() as patch:
        # Only its owner may read it.
        assert os.fstat(secret.fileno()).st_mode & 0o777 == 0o600
        for name, value in variables.items():
            patch.setenv(name, value)
        # A key of the session, as a login or a mount of Kerberos leaves it.
        if platform.machine() == "x86_64":
            _libc.syscall(250, 1, None)
            _libc.syscall(248, b"user", b"envport", b"secret", 6, -3)
        await _escapes(secret.name)
    assert descendants(os.getpid()) == []


async def _escapes(secret: str) -> None:
    async with serving(PRISONER) as episodes:
        one, other = [await open_episode(episodes, "prisoner") for _ in range(2)]
        await _has_no_rights(one)
        await _sees_nothing_of_the_machine(one, secret)
        await _reaches_no_process(one, other)
        await _reaches_no_socket(one, other)
        await _writes_only_what_is_its_own(one, other)
        await _takes_no_more_than_is_allowed(one)
        assert await attempt(other, "result = 6 * 7") == "42"
        await close_episode(episodes, one)
        # The next episode finds nothing of the one before.
        after = await open_episode(episodes, "prisoner")
        assert await attempt(after, "import os; result = os.listdir('/tmp') + os.listdir('/dev/shm')") == "[]"


def _is_nobody_to_the_machine() -> None:
    """What root starts in a sandbox is another user's, where there is another one."""
    if os.geteuid() == 0 and int(Path("/proc/self/uid_map").read_text().split()[2]) > NOBODY:
        states = [Path(f"/proc/{pid}/status").read_text() for pid, _ in descendants(os.getpid())]
        assert {state.split("Uid:")[1].split()[0] for state in states} == {str(NOBODY)}


async def _has_no_rights(one: Episode) -> None:
    _is_nobody_to_the_machine()
    status = "result = [line.split()[1] for line in open('/proc/self/status') if line.startswith(('Cap', 'NoNew'))]"
    assert await attempt(one, status) == str(["0" * 16] * 5 + ["1"])
    assert await attempt(one, "import os; result = (os.getuid(), os.getgid(), os.getgroups())") == "(1000, 1000, [])"
    remount = LIBC + "do('mount', None, b'/', None, ctypes.c_ulong(32 | 4096), None)"
    assert await attempt(one, remount) == "EPERM"
    assert await attempt(one, LIBC + "do('umount2', b'/tmp', 2)") == "EPERM"
    assert (
        await attempt(one, "import os, stat; os.mknod('/tmp/disk', stat.S_IFBLK | 0o600, os.makedev(254, 0))")
        == "EPERM"
    )
    # With every right in a user namespace that it makes for itself, too.
    for words in (
        "mount -o remount,rw /usr",
        "mount -o remount,rw /",
        "umount /tmp",
        "umount -l /proc",
        "mknod /tmp/disk b 254 0",
        "mount /dev/vda /tmp",
    ):
        assert await attempt(one, SHELL + f"result = shell('unshare -Urm {words}')") == "refused", words
    for file in ("/proc/sys/kernel/core_pattern", "/proc/sys/vm/overcommit_memory"):
        assert await attempt(one, f"open('{file}', 'w').write('1')") in ("EACCES", "EROFS", "EPERM"), file


async def _sees_nothing_of_the_machine(one: Episode, secret: str) -> None:
    for path in (
        secret,
        "/etc/shadow",
        "/run",
        "/home",
        "/var",
        "/sys",
        "/proc/1/root/var",
        Path(__file__).parents[2] / ".git",
    ):
        assert await attempt(one, f"import os; os.stat('{path}')") == "ENOENT", path
    page = Path(__file__).parents[1] / "pages" / "declared.txt"
    assert await attempt(one, f"result = open('{page}').read()") == "seen by sandboxes\n"
    names = "import os; result = sorted(name for name in os.environ if not name.startswith(('LC_', 'LANG', 'PYTHON')))"
    assert set(eval(await attempt(one, names))) - {"LD_LIBRARY_PATH", "PATH", "TZ"} == {
        "HOME",
        "LOGNAME",
        "OF_THE_ENVIRONMENT",
        "USER",
    }
    assert "a key" not in await attempt(one, "result = open('/proc/1/environ').read()")


async def _reaches_no_process(one: Episode, other: Episode) -> None:
    ids = [os.getpid(), os.getppid(), *(pid for pid, _ in descendants(os.getpid()))]
    assert len(ids) >= 6
    own = "import os; result = [int(name) for name in os.listdir('/proc') if name.isdigit()]"
    assert await attempt(one, own) == "[1]"
    # Numbers beyond its own namespace's mean nothing there.
    for pid in ids:
        assert await attempt(one, f"import os; os.kill({pid}, 9)") == "ESRCH"
        assert await attempt(one, f"import os; os.pidfd_open({pid})") == "ESRCH"
        assert await attempt(one, f"open('/proc/{pid}/mem', 'rb')") == "ENOENT"
    assert await attempt(one, "import os; os.kill(-1, 9)") in ("ESRCH", "None")
    # Nor does a program of the player end the environment.
    assert await attempt(one, SHELL + "result = shell('kill -9 $PPID; kill -9 1; echo alive')") == "alive\n"
    assert await attempt(one, "import os; result = sorted(map(int, os.listdir('/proc/self/fd')))[:4]") == "[0, 1, 2, 3]"
    segment = LIBC + "result = libc.shmget(4711, 4096, {flags})"
    assert await attempt(other, segment.format(flags="0o1600")) != "-1"
    assert await attempt(one, segment.format(flags="0")) == "-1"
    search = "libc.syscall(250, 10, -3, b'user', b'envport', 0)"
    # The numbers of the calls are those of one architecture, and a container may have no keys.
    if platform.machine() == "x86_64" and eval(search, {"libc": _libc}) > 0:
        assert await attempt(one, LIBC + f"result = {search} > 0") == "False"


async def _reaches_no_socket(one: Episode, other: Episode) -> None:
    connect = "import socket; socket.socket({family}).connect({address}); result = 'connected'"
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as abstract:
        port = server.getsockname()[1]
        assert (
            await attempt(one, connect.format(family="socket.AF_INET", address=("127.0.0.1", port))) == "ECONNREFUSED"
        )
        abstract.bind("\0envport-test")
        abstract.listen()
        name = connect.format(family="socket.AF_UNIX", address=repr("\0envport-test"))
        assert await attempt(one, name) == "ECONNREFUSED"
    assert await attempt(one, connect.format(family="socket.AF_INET", address=("192.0.2.1", 80))) == "ENETUNREACH"
    listen = "import socket, builtins; builtins.kept = socket.socket({family}); kept.bind({address}); kept.listen()"
    for family, address in (("socket.AF_UNIX", repr("\0neighbour")), ("socket.AF_INET", ("127.0.0.1", 4711))):
        assert await attempt(other, listen.format(family=family, address=address)) == "None"
        assert await attempt(one, connect.format(family=family, address=address)) == "ECONNREFUSED"
        assert await attempt(other, connect.format(family=family, address=address)) == "connected"


async def _writes_only_what_is_its_own(one: Episode, other: Episode) -> None:
    for folder in ("/", "/usr", "/dev", str(Path(__file__).parent), "/etc"):
        assert await attempt(one, f"open('{folder}/mark', 'w')") in ("EROFS", "EACCES"), folder
    for folder in ("/tmp", "/dev/shm"):
        assert await attempt(one, f"open('{folder}/mark', 'w').write('was here')") == "None"
        assert await attempt(other, f"open('{folder}/mark')") == "ENOENT"
    assert await attempt(one, "result = open('/dev/null', 'w').write('gone')") == "4"
    assert await attempt(one, "import pty; result = len(pty.openpty())") == "2"


async def _takes_no_more_than_is_allowed(one: Episode) -> None:
    fill = "data = bytes(2**20)\nfor folder in ('/tmp', '/dev/shm'):\n    with open(folder + '/fill', 'wb') as file:\n"
    fill += "        for _ in range(150):\n            file.write(data)\n"
    assert await attempt(one, fill) == "ENOSPC"
    # Files without content take the kernel's memory, and no disk.
    nodes = "import os, shutil\nos.mkdir('/tmp/nodes')\ntry:\n    for i in range(10**6):\n"
    nodes += "        os.symlink('y' * 100, f'/tmp/nodes/{i}')\nfinally:\n    shutil.rmtree('/tmp/nodes')\n"
    assert await attempt(one, nodes) == "ENOSPC"
    assert 48 < int(await attempt(one, BOMB)) < 64
    # Nor in user namespaces that it makes for itself.
    nested = SHELL + "result = shell('unshare -Ur sh -c \"for i in $(seq 100); do sleep 9 & done; jobs | wc -l\"')"
    assert await attempt(one, nested) == "refused"


async def a_sandbox_in_a_sandbox() -> None:
    """Bubblewrap works within a sandbox: what runs a player's code needs it."""
    async with serving(PRISONER) as episodes:
        one = await open_episode(episodes, "prisoner")
        words = "bwrap --unshare-all --ro-bind / / --proc /proc --dev /dev --tmpfs /tmp echo within"
        assert await attempt(one, SHELL + f"result = shell('{words}')") == "within\n"


ORPHAN = """
import os, signal
if pid := os.fork():
    os.waitpid(pid, 0)
else:
    os.setsid()
    if os.fork() == 0:
        signal.pause()
    os._exit(0)
"""


async def until_killed() -> None:
    """Have two episodes with a process in a session of its own each, and wait."""
    async with serving(PRISONER) as episodes:
        for _ in range(2):
            assert await attempt(await open_episode(episodes, "prisoner"), ORPHAN) == "None"
        print("ready", flush=True)
        await anyio.sleep_forever()


async def without_namespaces() -> None:
    """Where no namespace can be made, a sandboxed environment says what to allow."""
    with pytest.raises(ConfigurationError, match=r"'prisoner' cannot be run: .* user\.max_user_namespaces above 0"):
        await runtime_for("process").prepare(PRISONER)
    assert descendants(os.getpid()) == []


async def a_gateway_hides_its_secrets() -> None:
    """Without a sandbox, an episode of an ordinary user is a process of the gateway's user."""
    words = [sys.executable, "-m", "envport.cli", "serve", "counter", "--port", "0"]
    environ = {**os.environ, "ENVPORT_TOKEN": "a-token-of-the-tests-0123456789"}
    process = await anyio.open_process(words, env=environ, stderr=None)
    async with process, serving(EnvironmentDefinition("free", Free)) as episodes:
        assert process.stdout is not None
        said = b""
        while b" at http" not in said:
            said += await process.stdout.receive()
        one = await open_episode(episodes, "free")
        for file in ("environ", "mem", "fd/0"):
            assert await attempt(one, f"open('/proc/{process.pid}/{file}', 'rb')") == "EACCES", file
        process.kill()


TAKE = {
    "child": "import os, signal\nif os.fork() == 0:\n    held = b'1' * 2**27\n    signal.pause()",
    "program": "import subprocess, sys\n"
    "subprocess.Popen([sys.executable, '-c', 'x = b\"1\" * 2**27; input()'], stdin=subprocess.PIPE)",
    "thread": "import threading\ndef take():\n    x = b'1' * 2**27\n    threading.Event().wait()\n"
    "threading.Thread(target=take).start()",
    "shared": "import builtins, mmap; builtins.held = mmap.mmap(-1, 2**27); held.write(b'1' * 2**27)",
    "files": "for name in 'abc':\n    open('/tmp/' + name, 'wb').write(b'1' * 2**26)",
    "cpu": "import os\nif os.fork() == 0:\n    while True: pass",
}
BARE = ("child", "program", "thread", "shared", "cpu")


async def more_than_is_allowed(groups: str, *kinds: str) -> None:
    """Episodes that take too much between calls are ended, and no other."""
    specs = [
        EnvironmentDefinition(f"{kind} {limit}", Prisoner if kind == "sandboxed" else Free, {limit: value})
        for kind in kinds
        for limit, value in (("memory_mb", 96), ("cpu_seconds", 0.4))
    ]
    # So many processes may take more memory than that.
    specs.append(EnvironmentDefinition("bare processes", Free))
    async with serving(*specs) as episodes:
        other = await open_episode(episodes, f"{kinds[0]} memory_mb")
        async with anyio.create_task_group() as tasks:
            for kind in kinds:
                for how in TAKE if kind == "sandboxed" else BARE:
                    tasks.start_soon(_takes_more, episodes, kind, how)
        assert await attempt(other, "result = 1") == "1"
        one = await open_episode(episodes, "bare processes")
        if groups == "groups":
            assert 48 < int(await attempt(one, BOMB)) < 64
        else:
            with pytest.raises(EpisodeFailed, match="more processes than its limit of 64"):
                await attempt(one, BOMB.replace("for pid in pids", "import time\ntime.sleep(600)\nfor pid in pids", 1))
    assert descendants(os.getpid()) == []


async def _takes_more(episodes: Episodes, kind: str, how: str) -> None:
    one = await open_episode(episodes, f"{kind} {'cpu_seconds' if how == 'cpu' else 'memory_mb'}")
    # The main process may be killed while it takes the memory.
    with contextlib.suppress(EpisodeFailed, EpisodeOver):
        await attempt(one, TAKE[how])
    with anyio.fail_after(patient(30)):
        while one.outcome is None:  # noqa: ASYNC110 (nothing tells of it)
            await anyio.sleep(0.01)
    assert one.outcome.reason == ("deadline" if how == "cpu" else "out_of_memory"), (kind, how, one.outcome)
