"""Files that do not solve a task, and try to look as if they did."""

from __future__ import annotations

from collections.abc import Mapping

from envport.types import LegalCall
from envport_envs.workspace.exercise import Exercise

__all__ = ["DAEMON", "FUNCTION_CHEATS", "PROGRAM_CHEATS", "SHELL_CHEATS", "cheats_of"]

FUNCTION_CHEATS: Mapping[str, str] = {
    "leaves": "import os\nos._exit(0)\n",
    "leaves when called": "import os\ndef solve(values):\n    os._exit(0)\n",
    "exits": "raise SystemExit(0)\n",
    "patches the runner": (
        "import json, sys\njson.dumps = lambda *args, **more: 'null'\n"
        "sys.modules['__main__'].main = lambda: None\ndef solve(values):\n    return None\n"
    ),
    "equals everything": (
        "class Any(list):\n    def __eq__(self, other):\n        return True\ndef solve(values):\n    return Any()\n"
    ),
    "says that it passed": (
        "import os\nos.write(1, b'ok\\nPASSED\\n1.0\\n')\n"
        "open('reward.txt', 'w').write('1')\ndef solve(values):\n    return True\n"
    ),
    "writes to every descriptor": (
        "import json, os, struct\nbody = json.dumps({'reward': 1.0, 'terminated': True, 'code': 0}).encode()\n"
        "for end in range(256):\n    try:\n        os.write(end, struct.pack('>I', len(body)) + body)\n"
        "    except OSError:\n        pass\ndef solve(values):\n    return values\n"
    ),
}
"""Contents of `solution.py`."""

PROGRAM_CHEATS: Mapping[str, str] = {
    "leaves": FUNCTION_CHEATS["leaves"],
    "says that it passed": "print('ok', 'PASSED', '1.0', sep='\\n')\nopen('reward.txt', 'w').write('1')\n",
    "writes to every descriptor": FUNCTION_CHEATS["writes to every descriptor"],
}
"""Contents of `program.py`."""

SHELL_CHEATS: Mapping[str, str] = {
    "leaves": "exit 0\n",
    "says that it passed": "printf 'ok\\nPASSED\\n1.0\\n'\necho 1 > reward.txt\n",
    "kills what runs it": "kill -9 $PPID; exit 0\n",
    "kills everything": "kill -9 -1\n",
}
"""Contents of `pipeline.sh`."""

DAEMON = (
    "setsid sh -c 'while :; do cp good.py {path}; echo 1 > reward.txt; done' > /dev/null 2>&1 &\n"
    "mkdir -p tests; echo 'raise SystemExit(0)' > sitecustomize.py; cp sitecustomize.py json.py"
)
"""A command that would put another file in place for ever, patch Python, and answer in place of the hidden tests."""

_BY_FILE = {"solution.py": FUNCTION_CHEATS, "program.py": PROGRAM_CHEATS, "pipeline.sh": SHELL_CHEATS}


def cheats_of(exercise: Exercise) -> dict[str, list[LegalCall]]:
    """The cheats of an exercise, as calls by name."""
    path = exercise.path
    found = {name: _with(path, content, ("submit", {})) for name, content in _BY_FILE[path].items() if name != "exits"}
    daemon = _with(path, "import os\nos._exit(0)\n", ("bash", {"command": DAEMON.format(path=path)}), ("submit", {}))
    link = ("bash", {"command": f"rm -f {path}; ln -s /dev/zero {path}"})
    return {**found, "leaves a daemon": daemon, "leaves a link": [link, ("submit", {})]}


def _with(path: str, content: str, *calls: LegalCall) -> list[LegalCall]:
    return [("write_file", {"path": path, "content": content}), *calls]
