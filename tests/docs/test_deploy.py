"""The files of examples/deploy: manifests that Kubernetes takes, and commands that envport and Ray take."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest
import typer
from command_line import TOKEN, Served, refused
from images import Image, Started, instructions
from patience import patient

from envport import Client
from envport.cli import application
from envport.cli.building.container import Container

yaml = pytest.importorskip("yaml")
kubernetes_validate = pytest.importorskip("kubernetes_validate")

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "examples/deploy"
MANIFESTS = [
    document
    for file in sorted((DEPLOY / "kubernetes").glob("*.yaml"))
    for document in yaml.safe_load_all(file.read_text())
]
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["gateway"]
CONFIG = "/etc/envport/envport.toml"
PODS = {
    manifest["metadata"]["name"]: manifest["spec"]["template"]
    for manifest in MANIFESTS
    if "template" in manifest["spec"]
}


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [manifest for manifest in MANIFESTS if manifest["kind"] == kind]


def container(name: str) -> dict[str, Any]:
    (found,) = PODS[name]["spec"]["containers"]
    return found


def gateway_commands() -> list[list[str]]:
    """What a gateway's pod runs, one command after the other."""
    *shell, script = [*container("envport-gateway")["command"], *container("envport-gateway")["args"]]
    assert shell == ["sh", "-c"]
    return [shlex.split(command) for command in script.split("&&")]


def takes(command: Any, words: list[str]) -> None:
    """Parse the words as the command does, which fails with what is wrong."""
    command.make_context(command.name, words)


@pytest.mark.parametrize("version", ["1.31", kubernetes_validate.latest_version()])
def test_the_manifests_are_valid(version: str):
    for manifest in MANIFESTS:
        kubernetes_validate.validate(manifest, version, strict=True)


def test_what_the_manifests_name_is_there():
    labels = [pod["metadata"]["labels"] for pod in PODS.values()]
    for service in of_kind("Service"):
        assert any(service["spec"]["selector"].items() <= its.items() for its in labels)
        port = service["spec"]["ports"][0]
        assert port.get("targetPort", port["name"]) in {
            named["name"] for name in PODS for named in container(name).get("ports", ())
        }
    for budget in of_kind("PodDisruptionBudget"):
        assert any(budget["spec"]["selector"]["matchLabels"].items() <= its.items() for its in labels)
    (scaler,) = of_kind("HorizontalPodAutoscaler")
    assert scaler["spec"]["scaleTargetRef"]["name"] in PODS
    page = (DEPLOY / "README.md").read_text()
    assert "create configmap envport --from-file=envport.toml" in page
    assert "create secret generic envport --from-file=tokens.toml" in page
    assert "--from-literal=ENVPORT_SECRET=" in page
    probes = container("envport-gateway")
    assert probes["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert probes["readinessProbe"]["httpGet"]["path"] == "/readyz"
    for name, pod in PODS.items():
        assert pod["spec"]["securityContext"]["runAsUser"] == 1000
        assert container(name)["resources"]["limits"].keys() == {"cpu", "memory"}


def test_every_command_is_one_that_ray_takes():
    scripts = pytest.importorskip("ray.scripts.scripts")
    commands = [[*container(name)["command"], *container(name)["args"]] for name in PODS if name != "envport-gateway"]
    for ray, start, *words in [*commands, gateway_commands()[0]]:
        assert (ray, start) == ("ray", "start")
        takes(scripts.start, words)
    # Each other finds the head.
    told = [word for _, _, *words in [*commands, gateway_commands()[0]] for word in words if "address" in word]
    assert told == ["--address=envport-ray:6379"] * 2


def test_the_gateways_of_kubernetes_are_started_as_envport_takes_it():
    execute, envport, serve, *words = gateway_commands()[1]
    assert (execute, envport, serve) == ("exec", "envport", "serve")
    application._register(["serve"])
    command: Any = typer.main.get_command(application.app)
    takes(command.commands["serve"], [word.replace(CONFIG, str(DEPLOY / "envport.toml")) for word in words])
    resource = json.loads(container("envport-ray-worker")["args"][1].partition("=")[2])
    assert words[words.index("--ray-resource") + 1] in resource
    seconds = {name: int(words[words.index(name) + 1]) for name in ("--drain-seconds", "--shutdown-seconds")}
    waited = int(container("envport-gateway")["lifecycle"]["preStop"]["exec"]["command"][1])
    assert waited + sum(seconds.values()) < PODS["envport-gateway"]["spec"]["terminationGracePeriodSeconds"]


def test_compose_serves_with_the_tokens_of_the_page_and_not_without(tmp_path: Path):
    assert {volume.split(":")[1] for volume in COMPOSE["volumes"]} == {CONFIG}
    words = [word.replace(CONFIG, str(DEPLOY / "envport.toml")) for word in COMPOSE["command"]]
    said = refused("serve", *words, "--port", "0", cwd=tmp_path)
    assert "without tokens" in said
    block = (DEPLOY / "README.md").read_text().split("```bash\n")[1].split("```")[0]
    lines = block.replace("cd examples/deploy\n", "").replace("$(openssl rand -hex 24)", TOKEN)
    subprocess.run(["sh", "-ec", lines], cwd=tmp_path, check=True, timeout=patient(30))
    with Served(*words, cwd=tmp_path, ENVPORT_TOKENS_FILE=str(tmp_path / "tokens.toml")) as served:
        port = served.url.rpartition(":")[2]
        asked = [part.replace(":8000/", f":{port}/") for part in COMPOSE["healthcheck"]["test"][2:]]
        subprocess.run([sys.executable, *asked], check=True, timeout=patient(30))
        assert httpx2.get(f"http://localhost:{port}/").status_code == 401
        with Client(f"http://localhost:{port}", token=TOKEN) as client:
            assert {it.name for it in client.environments()} == {"catch", "maze", "large-catch"}
            assert client.open("large-catch").episode_id


def test_the_dockerfile_has_what_all_our_images_have_and_copies_what_it_may():
    steps = list(instructions(DEPLOY / "Dockerfile"))
    ours = Container(8000, (), (), ("bubblewrap",)).dockerfile()
    for line in ours.splitlines():
        if not line.startswith(("#", "FROM", "WORKDIR")):
            assert line in (DEPLOY / "Dockerfile").read_text(), line
    let_in = re.findall(r"^!(.*)$", (DEPLOY / "Dockerfile.dockerignore").read_text(), flags=re.MULTILINE)
    copied = [word for what, text in steps if what == "COPY" for word in text.split()[:-1]]
    assert copied == let_in
    assert all((ROOT / name).exists() for name in copied)
    assert [text for what, text in steps if what == "USER"] == ["user"]


@pytest.mark.slow
def test_the_dockerfile_s_steps_make_a_gateway(tmp_path: Path):
    image = Image(ROOT, tmp_path / "image", own_python=True, file=DEPLOY / "Dockerfile", EXTRAS="images,gymnasium,otel")
    with Started(image, ENVPORT_TOKEN=TOKEN) as served:
        port = served.url.rpartition(":")[2]
        with Client(f"http://localhost:{port}", token=TOKEN) as client:
            assert client.open("catch").episode_id
