"""The arithmetic of capacity planning, by cases that are worked out by hand."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from envport.bench.capacity import (
    ClusterCosts,
    Costs,
    EpisodeDemand,
    GatewayCosts,
    MachineSize,
    Plan,
    ProcessCosts,
    RoleCosts,
    StoreCosts,
    plan_for,
    predict,
)
from envport.bench.capacity.__main__ import capacity
from envport.errors import ConfigurationError

# Round figures: a call over HTTP takes 200 µs in a gateway, and 800 more where it asks a host.
COSTS = Costs(
    GatewayCosts(
        {"channel": 100, "http": 200, "sessions": 300}, {"channel": 1_000, "http": 2_000, "sessions": 2_000}, 80, 10, 50
    ),
    ProcessCosts(gateway_us=100, episode_us=100, open_ms=5, episode_mb=3),
    ClusterCosts(
        call_us=RoleCosts(gateway=1_000, host=900, episode=100, ray=0),
        open_us=RoleCosts(gateway=2_000, host=1_900, episode=5_000, ray=0),
        idle_cores=RoleCosts(gateway=0.01, host=0.01, episode=0, ray=0.03),
        gateway_mb=100,
        host_mb=88,
        ray_mb=400,
        episode_mb=2.5,
        connection_kb=20,
        descriptors=2,
        processes=1,
        opens_per_second=80,
    ),
    StoreCosts(call_us=30, episode_us=200, process_mb=60),
)
MACHINE = MachineSize(cores=16, memory_gb=64, busy=0.5, descriptors=20_200, processes=32_768, ports=28_232)
app = typer.Typer()
app.command()(capacity)


def plan(episodes: int, **asked: Any) -> Plan:
    # A call each second; 10 calls are an episode.
    return plan_for(EpisodeDemand(episodes, **{"think_seconds": 1.0, "calls": 10} | asked), MACHINE, COSTS)


def ceilings(plan: Plan) -> dict[str, int]:
    return {ceiling.resource: int(ceiling.episodes) for ceiling in (*plan.gateways.ceilings, *plan.hosts.ceilings)}


def test_inline_the_event_loop_of_a_gateway_is_met_first():
    found = plan(100_000)
    # An episode takes 100 µs and a tenth of 1,000 µs a second; half a core is 500,000 µs.
    assert found.first.resource == "event loop of a gateway"
    assert found.first.episodes == 2_500
    assert found.gateways.count == 40
    # To record it, 30 µs and a tenth of 200 µs. 16 cores, half of the time: 8,000,000 µs.
    assert ceilings(found)["process that fills the database"] == 10_000
    assert ceilings(found)["cores of a machine"] == 32_000
    assert found.hosts.count == 4
    assert found.cores == pytest.approx(25)
    # 10 KB each; 80 MB, the process that fills the database and 10,000 ended episodes in each of 40 gateways.
    assert found.memory_gb == pytest.approx(1.0 + 40 * (0.080 + 0.060 + 0.100))
    assert (found.client_sockets, found.inner_sockets, found.processes) == (40, 0, 0)
    assert found.demand.calls_per_second == 100_000
    assert found.demand.opens_per_second == 10_000
    assert found.demand.writes_per_second == 120_000


def test_an_inline_environment_s_own_time_is_the_event_loop_s():
    assert plan(1_000, environment_ms=0.3).first.episodes == 1_000
    beside = plan(1_000, environment_ms=0.3, runtime="process")
    loop, cores = 100 + 100 + 200, 100 + 300 + 500
    assert ceilings(beside)["event loop of a gateway"] == 500_000 // loop
    assert ceilings(beside)["cores of a machine"] == 8_000_000 // (loop + cores + 50)


def test_over_http_each_episode_has_a_connection():
    found = ceilings(plan(1_000, surface="http", think_seconds=1_000.0))
    assert found["ports of a proxy"] == 28_232
    assert found["open files of a gateway"] == 20_000
    assert plan(1_000, surface="http").client_sockets == 1_000
    # 50 KB with the session and 20 KB of the connection.
    sessions = plan(1_000, surface="sessions", think_seconds=1_000.0)
    assert sessions.memory_gb == pytest.approx(0.070 + 0.240)


def test_processes_need_memory_files_and_forks():
    found = plan(1_000_000, runtime="process", think_seconds=100.0)
    at = ceilings(found)
    assert at["open files of a gateway"] == 10_000
    assert found.gateways.bottleneck.resource == "open files of a gateway"
    # A zygote forks 100 a second in half of its time; an episode is opened every 1,000 s.
    assert at["forks of a zygote"] == 100_000
    # 3 MB each, and the ten-thousandth part of a gateway's 240 MB.
    assert at["memory of a machine"] == int(64_000 / (3 + 0.0240))
    assert found.hosts.bottleneck.resource == "memory of a machine"
    assert (found.gateways.count, found.hosts.count, found.processes) == (100, 48, 1_000_000)
    tight = plan_for(
        EpisodeDemand(1_000, 100.0, 10, runtime="process"), replace(MACHINE, processes=1_000, memory_gb=1e6), COSTS
    )
    assert tight.hosts.bottleneck.resource == "processes of a machine"


def test_in_a_cluster_the_event_loops_and_the_reports_of_load_count():
    found = plan(1_000, runtime="ray", surface="http")
    # A call and a tenth of an opening: 1,200 µs in the gateway, 1,090 µs in the host.
    (gateways, hosts) = found.gateways.count, found.hosts.count
    assert found.gateways.bottleneck.episodes == pytest.approx((500_000 - hosts * 800) / 1_200)
    assert found.hosts.bottleneck.episodes == pytest.approx((500_000 - gateways * 900) / 1_090)
    assert (gateways, hosts) == (3, 3)
    assert found.asks_per_second == found.inner_sockets == 9
    assert found.gateway_machines == 1
    assert found.cores == pytest.approx(1.2 + 1.09 + 0.6 + 0.05 + 9 * 1_700 / 1e6)
    base = 88 + 400 + 160
    assert found.memory_gb == pytest.approx((1_000 * 2.52 + 3 * base + 3 * 100) / 1e3)


def test_in_a_large_cluster_a_gateway_asks_50_hosts_a_second():
    found = plan(1_000_000, runtime="ray", surface="http")
    (gateways, hosts) = found.gateways.count, found.hosts.count
    assert found.asks_per_second == 50 * gateways
    assert found.gateways.bottleneck.episodes == pytest.approx((500_000 - 50 * 800) / 1_200)
    assert found.hosts.bottleneck.episodes == pytest.approx((500_000 - gateways * 50 / hosts * 900) / 1_090)
    assert gateways == math.ceil(1_000_000 / found.gateways.bottleneck.episodes)


def test_what_no_number_of_machines_can_do_is_said():
    with pytest.raises(ConfigurationError, match="event loop of a gateway"):
        plan(1, think_seconds=1e-5)


def test_two_hosts_are_predicted_from_one():
    cluster = COSTS.cluster
    # 2,000 µs in the cluster and 500 µs in the callers; 0.07 cores are used by idle processes.
    on_cores = predict(cluster, 2, cores=2.0, callers_us=500)
    assert (on_cores.limit, on_cores.calls_per_second) == ("cores", pytest.approx(1.93e6 / 2_500))
    assert on_cores.call_us == pytest.approx(2_000 + 0.07e6 / on_cores.calls_per_second)
    assert predict(cluster, 2, cores=64.0, callers_us=500).limit == "gateways"
    assert predict(cluster, 2, cores=64.0, callers_us=500).calls_per_second == pytest.approx(1_980)
    assert predict(cluster, 8, cores=64.0, callers_us=500).limit == "callers"
    busy_hosts = replace(cluster, call_us=RoleCosts(900, 1_000, 100, 0))
    assert predict(busy_hosts, 2, cores=64.0, callers_us=500).limit == "hosts"


@pytest.mark.parametrize("runtime", ["inline", "process", "ray"])
def test_the_command_prints_a_column_for_each_number(runtime: str):
    shown = CliRunner().invoke(app, ["--runtime", runtime])
    assert shown.exit_code == 0, shown.output
    for words in ("1,000 episodes", "100,000 episodes", "1,000,000 episodes", "gateways", "memory, GB", "met first"):
        assert words in shown.stdout
    # 10,000 calls, and twice 500 episodes; the command shortens nothing.
    assert re.search(r"database writes a second +110 +11,000 +110,000", shown.stdout)


def test_the_command_reads_one_s_own_measurements(tmp_path: Path):
    def row(target: str, cpu_us: float) -> dict[str, Any]:
        return {"target": target, "callers": 1, "cpu_us": cpu_us}

    held = [{"target": f"episode-{era}", "before_mb": 80, "each_kb": 10} for era in ("modern", "legacy")]
    rows = [
        row("channel", 100),
        row("episode-modern", 200),
        row("episode-legacy", 300),
        row("bare", 1),
        {"target": "channel", "callers": 64, "cpu_us": 9},
    ]
    report = tmp_path / "bench.json"
    opens = [row("channel", 1_000), row("episode-modern", 2_000), {"target": "channel", "callers": 16, "cpu_us": 9}]
    report.write_text(json.dumps({"rows": rows, "opens": opens, "held": held}))
    filling = "CPU of the process that fills the database, for"
    figures = {
        f"{filling} a call": 30,
        f"{filling} the beginning and the end of an episode": 200,
        "memory of the process that fills the database (USS)": 60,
    }
    recording = tmp_path / "recording.jsonl"
    recording.write_text("\n".join(json.dumps({"what": what, "value": value}) for what, value in figures.items()))
    words = ["--bench", str(report), "--recording", str(recording), "--episodes", "100000", "--think", "1"]
    shown = CliRunner().invoke(app, [*words, "--calls", "10", "--json"])
    assert shown.exit_code == 0, shown.output
    (found,) = json.loads(shown.stdout)
    assert found["gateways"]["count"] == 40
    assert found["first"]["resource"] == "event loop of a gateway"
    assert found["cores"] == pytest.approx(25)


@pytest.mark.parametrize(
    ("option", "content"),
    [("--bench", "{}"), ("--runtimes", '{"what": 1}'), ("--cluster", "[]"), ("--recording", "{}")],
)
def test_a_file_that_is_no_measurement_is_refused(option: str, content: str, tmp_path: Path):
    file = tmp_path / "wrong.json"
    for refused in (file, tmp_path):
        file.write_text(content)
        shown = CliRunner().invoke(app, [option, str(refused)])
        assert shown.exit_code == 2, shown.output
    file.write_text("nothing")
    assert CliRunner().invoke(app, [option, str(file)]).exit_code == 2


def test_the_table_of_the_page_is_what_the_command_says():
    page = (Path(__file__).parents[2] / "gateway/envport/bench/capacity/README.md").read_text("utf-8")
    told = re.findall(r"^\| `(inline|process|ray)` \| (1[0,]+) (\|.*) \|$", page, flags=re.MULTILINE)
    assert len(told) == 9
    for runtime, episodes, cells in told:
        shown = CliRunner().invoke(app, ["--runtime", runtime, "--episodes", episodes.replace(",", ""), "--json"])
        (found,) = json.loads(shown.stdout)
        counts = found["gateways"]["count"], found["hosts"]["count"], found["gateway_machines"]
        figures = [*(f"{count:,}" for count in counts), f"{found['cores']:,.1f}", f"{found['memory_gb']:,.1f}"]
        assert cells == f"| {' | '.join(figures)} | {found['processes']:,} | {found['first']['resource']}"
