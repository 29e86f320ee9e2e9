"""Which tests are nearest to a mutant: those that touch its lines, and if that is not known, those of a folder."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from functools import cache

from mutations import ROOT, Mutant
from touched import Touched

FORKING = "gateway/envport/runtimes/fork_server.py"
LOCKING = "gateway/envport/player_code/bubblewrap.py"
# For what runs in other processes than the tests: folders and files of tests, and files of the source, which stand for
# the tests that touch them. The longest beginning of a file's path decides.
TESTS = {
    "gateway/envport": "core gateway cli",
    "gateway/envport/access.py": "gateway/test_access.py gateway/test_isolation.py gateway/test_refusals.py",
    "gateway/envport/app.py": "gateway",
    "gateway/envport/bench": "bench",
    "gateway/envport/channel": "gateway/test_channel.py bridges/test_rollouts.py gateway",
    "gateway/envport/checker": "core/test_checker.py core envs/test_all_environments.py",
    "gateway/envport/cli": "cli",
    **{f"gateway/envport/cli/{name}.py": "cli/test_cli_play.py cli" for name in ("observation", "play", "question")},
    **{f"gateway/envport/cli/{name}.py": "cli/test_cli_catalogue.py cli" for name in ("catalogue", "loading")},
    "gateway/envport/cli/application.py": "cli/test_cli_errors.py evaluation/test_evaluation_command.py cli",
    "gateway/envport/client": "gateway/test_control_plane.py gateway/test_refusals.py gateway/test_access.py bridges",
    "gateway/envport/cluster": "cluster",
    "gateway/envport/environment.py": "core",
    "gateway/envport/episodes": "core/test_episodes.py core/test_episode_machine.py core/test_admission.py gateway",
    "gateway/envport/episodes/watched.py": "gateway/test_metrics.py core/test_episodes.py cli/test_cli_tracing.py",
    "gateway/envport/http": "gateway/test_control_plane.py gateway/test_refusals.py cli/test_cli_tracing.py gateway",
    "gateway/envport/mcp": "gateway cli/test_cli_stdio.py cli/test_cli_drain.py",
    "gateway/envport/metrics": "gateway/test_metrics.py",
    "gateway/envport/player_code": f"{LOCKING} runtimes/test_player_code.py gateway/test_player_faults.py runtimes",
    "gateway/envport/registry.py": "core/test_registry.py core cli/test_cli_catalogue.py cli/test_cli_errors.py",
    "gateway/envport/runtimes": "runtimes core/test_episodes.py",
    **{f"gateway/envport/runtimes/{name}.py": f"{FORKING} runtimes" for name in ("child", "zygote")},
    "gateway/envport/runtimes/fork_server.py": f"{FORKING} runtimes",
    "gateway/envport/runtimes/sandbox.py": "runtimes/test_sandbox.py runtimes/test_player_code.py runtimes",
    "gateway/envport/runtimes/syscalls.py": "runtimes/test_sandbox.py runtimes/test_player_code.py runtimes",
    "gateway/envport/runtimes/descriptors.py": "cli/test_cli_serve.py",
    "gateway/envport/serving.py": "cli",
    "gateway/envport/telemetry": "gateway/test_metrics.py cli/test_cli_tracing.py cli/test_cli_logs.py",
    "gateway/envport/tools": "core/test_tool_schemas.py core/test_sampling.py core/test_content.py core gateway",
    "gateway/envport/tools/arguments.py": "core/test_bad_input.py core/test_tool_schemas.py gateway",
    "gateway/envport/tools/sampling.py": "core/test_sampling.py core/test_checker.py",
    "gateway/envport/trajectories": "core/test_trajectories.py trajectories core/test_episodes.py gateway",
    "gateway/envport/web": "web",
    "bridges/envport_bridges": "bridges",
    "bridges/envport_bridges/agents": "agents bridges evaluation/test_evaluation_agents.py evaluation",
    "bridges/envport_bridges/audit": "evaluation/test_audit.py evaluation",
    "bridges/envport_bridges/inspect_ai.py": "evaluation",
    "bridges/envport_bridges/model_serving": "bridges/test_trl_model_serve.py agents evaluation",
    "bridges/envport_bridges/playing": "evaluation",
    "bridges/envport_bridges/evaluation": "evaluation/test_evaluation_command.py evaluation",
    "bridges/envport_bridges/evaluation/inspect_ai": "evaluation/test_evaluation_inspect.py evaluation",
    "bridges/envport_bridges/agents/gateways": "agents/test_hosted_gateways.py evaluation",
    "bridges/envport_bridges/agents/programs": "agents evaluation/test_evaluation_agents.py evaluation",
    "bridges/envport_bridges/evaluation/players": "evaluation/test_evaluation_inspect.py evaluation",
    "bridges/envport_bridges/rollouts": "bridges/test_rollouts.py bridges/test_trl_connections.py bridges",
    "bridges/envport_bridges/trl": "bridges",
    "envs/envport_envs": "envs",
    **{f"envs/envport_envs/{name}.py": f"envs/test_{name}.py envs" for name in ("catch", "maze", "sudoku", "wordle")},
}
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def nearest(mutant: Mutant, touched: Touched) -> tuple[list[str], list[str]]:
    """The tests that touch what has changed, and those that are near to its file; each with the best ones first."""
    last = mutant.source.count(b"\n", 0, mutant.end) + 1
    statement, inside = _statement(mutant.source, mutant.line)
    found: list[str] = []
    if inside:
        found += touched.tests(mutant.path, mutant.line, last)
        found += touched.tests(mutant.path, *_head(statement))
    else:
        # It runs when it is imported. What matters is what reads it later.
        for name in _names(statement):
            found += touched.mentioning(name)
        if isinstance(statement, DEFINITIONS):
            found += touched.tests(mutant.path, statement.lineno, statement.end_lineno or last)
    near = (test for name in mapped(mutant.path) for test in _of(name, touched))
    return _once(found), _once(near, found)


def _of(name: str, touched: Touched) -> list[str]:
    return touched.touching(name) if (ROOT / name).is_file() else touched.among(f"tests/{name}")


def _once(tests: Iterable[str], other: Iterable[str] = ()) -> list[str]:
    known = set(other)
    return [test for test in dict.fromkeys(tests) if test not in known]


def mapped(path: str) -> Sequence[str]:
    """The folders and files of tests, and the files of the source, that are near to a file of the source."""
    names = TESTS[max((start for start in TESTS if path.startswith(start)), key=len)]
    return names.split()


@cache
def _parsed(source: bytes) -> ast.Module:
    return ast.parse(source)


def _statement(source: bytes, line: int) -> tuple[ast.stmt, bool]:
    """The innermost statement at a line, and whether a function's call runs it."""
    body: Sequence[ast.AST] = _parsed(source).body
    statement, inside = None, False
    while around := [node for node in body if node.lineno <= line <= node.end_lineno]:  # type: ignore[attr-defined]
        (node,) = around[-1:]
        if isinstance(node, ast.stmt):
            inside = inside or isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef)
            statement = node
        body = [it for it in ast.iter_child_nodes(node) if hasattr(it, "lineno") and not isinstance(it, ast.expr)]
    assert statement is not None
    return statement, inside


def _head(statement: ast.stmt) -> tuple[int, int]:
    """The lines of a statement, without those of its body."""
    first = getattr(statement, "body", None)
    last = statement.end_lineno if first is None else max(statement.lineno, first[0].lineno - 1)
    return statement.lineno, last or statement.lineno


def _names(statement: ast.stmt) -> list[str]:
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    return [name.id for target in targets if target for name in ast.walk(target) if isinstance(name, ast.Name)]
