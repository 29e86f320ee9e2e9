"""What an episode of an environment costs: opening it, and a call.

python examples/grpo_mcp_server/costs.py
python examples/grpo_mcp_server/costs.py "mcp:http://127.0.0.1:9000/mcp" list_orders "{}"
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

from envport_bridges.rollouts import Rollouts

SERVER = "mcp:npx -y @modelcontextprotocol/server-filesystem ."


def milliseconds(work: Callable[[], Any]) -> tuple[float, Any]:
    """How long some work takes, and its result."""
    began = time.perf_counter()
    result = work()
    return (time.perf_counter() - began) * 1000, result


def main() -> None:
    """Print the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("environment", nargs="?", default=SERVER)
    parser.add_argument("tool", nargs="?", default="list_directory")
    parser.add_argument("arguments", nargs="?", type=json.loads, default={"path": "."})
    parser.add_argument("--episodes", type=int, default=8)
    parser.add_argument("--calls", type=int, default=50)
    options = parser.parse_args()
    figures: dict[str, tuple[float, float]] = {}
    targets = {
        "echo": ("echo", "echo", {"message": "x"}),
        options.environment: (options.environment, options.tool, options.arguments),
    }
    for name, (reference, tool, arguments) in targets.items():
        rollouts, opened, called = Rollouts(reference), list[float](), list[float]()
        for _ in range(options.episodes):
            took, rollout = milliseconds(rollouts.open)
            opened.append(took)
            with rollout:
                called += [milliseconds(lambda: rollout.call(tool, arguments))[0] for _ in range(options.calls)]  # noqa: B023
        figures[name] = (statistics.median(opened), statistics.median(called))
        print(f"{name}: opens in {figures[name][0]:.1f} ms, a call takes {figures[name][1]:.2f} ms")
    base, other = figures.values()
    print(f"ratios: opening {other[0] / base[0]:.0f}, a call {other[1] / base[1]:.0f}")


if __name__ == "__main__":
    main()
