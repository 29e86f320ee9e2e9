"""The files of a folder that is an image for Docker, and a Space of Hugging Face."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from envport.cli.building.container import SANDBOX_PACKAGES, Container
from envport.cli.building.contents import Contents
from envport.cli.summary import first_line
from envport.definition import EnvironmentDefinition

__all__ = ["PORT", "dockerfile", "environment_file", "ignored", "image_name", "page", "toml"]

PORT = 7860
"""The port that a Space answers at, unless its page says otherwise."""

_SHORT = 60
_APP = "/app"

_PAGE = """\
---
{front}
---

# {name}

{description}

An environment of envport, made by `envport build`: any MCP client plays it, and trainers open episodes over HTTP.

## At Hugging Face

1. Make a Space of the type Docker. Let it be public: its token is the one below, and a private Space wants a token of
   Hugging Face in the same header.
2. Settings, *Variables and secrets*: add the **secret** `ENVPORT_TOKEN`, such as the output of `openssl rand -hex 24`.
   Without it the Space does not start: nobody gets in without a token.
3. `hf upload USER/SPACE . . --repo-type space`

```bash
export ENVPORT_TOKEN=...
envport play {name} --url https://USER-SPACE.hf.space
envport attach {name} --url https://USER-SPACE.hf.space
```

Whoever has this token opens episodes and reads rewards. For an agent, open the episode with `mint_token=True`: the
token that comes back plays this one episode and opens nothing else.

## With Docker

```bash
docker build -t {image} .
export ENVPORT_TOKEN="$(openssl rand -hex 24)"
docker run --rm -p 127.0.0.1:{port}:{port} -e ENVPORT_TOKEN{rights} {image}
envport play {name} --url http://localhost:{port}
```

It answers to the name `localhost`, and in a Space to that of the Space. For another one, change `--allowed-host` in the
last line of the `Dockerfile`, and put a proxy with TLS in front.
{more}"""

_RIGHTS = (
    " --cap-add SYS_ADMIN \\\n  --security-opt seccomp=unconfined --security-opt apparmor=unconfined"
    " --security-opt systempaths=unconfined"
)
_SANDBOX = """
## Rights

What players or servers run is in a sandbox, which needs user namespaces; the options of `docker run` above allow them.
Where they are forbidden, the gateway starts and `/readyz` says what is missing. Whether a Space allows them was not
tried.
"""

_SECRETS = """
## Secrets of the environment

It needs {names} too, as secrets of the Space, or by `docker run -e`.
"""


def dockerfile(contents: Contents, packages: Sequence[str]) -> str:
    """The Dockerfile.

    Args:
        contents: What is copied and installed.
        packages: Debian packages that the author names.
    """
    search = ":".join(_APP if path == "." else f"{_APP}/{path}" for path in contents.search)
    return Container(
        PORT,
        (
            "COPY requirements.txt *.whl ./",
            "RUN pip install --no-cache-dir --find-links . --requirement requirements.txt",
            "COPY . .",
            f"ENV PYTHONPATH={search}",
        ),
        (
            "# Hugging Face gives a Space its name in SPACE_HOST.",
            f"CMD exec envport serve --host 0.0.0.0 --port {PORT} --allowed-host localhost "
            '${SPACE_HOST:+--public-url "https://$SPACE_HOST"}',
        ),
        (*(SANDBOX_PACKAGES if contents.sandboxed else ()), *packages),
    ).dockerfile()


def page(definition: EnvironmentDefinition, contents: Contents, secrets: Sequence[str]) -> str:
    """The page, which begins with what a Space reads of it.

    Args:
        definition: The environment.
        contents: What the container needs.
        secrets: The variables of the environment's secrets.
    """
    front = {
        "title": definition.name,
        "short_description": first_line(definition.description)[:_SHORT] or definition.name,
        "sdk": "docker",
        "app_port": PORT,
        "pinned": False,
        "tags": ["envport", "mcp", "reinforcement-learning"],
    }
    more = _SANDBOX if contents.sandboxed else ""
    if secrets:
        more += _SECRETS.format(names=", ".join(f"`{name}`" for name in secrets))
    return _PAGE.format(
        # JSON is YAML.
        front="\n".join(f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in front.items()),
        name=definition.name,
        image=image_name(definition.name),
        description=definition.description or f"The environment {definition.name}.",
        port=PORT,
        rights=_RIGHTS if contents.sandboxed else "",
        more=more,
    )


def image_name(name: str) -> str:
    """The name of an environment, as the name of an image: in small letters, with single separators."""
    return re.sub(r"[._-]+", "-", name.lower()).strip("-")


def ignored() -> str:
    """What Docker does not send to the build."""
    return "\n".join((".git", ".gitattributes", "README.md", "**/__pycache__", "**/*.pyc", ".venv", ""))


def environment_file(name: str, entry: Mapping[str, Any], serve: Mapping[str, Any]) -> str:
    """The `envport.toml` of the container: one environment, and the settings that it keeps."""
    lines = ["[serve]", *(f"{key} = {toml(value)}" for key, value in serve.items()), ""] if serve else []
    lines += [f"[environments.{toml(name)}]", *(f"{key} = {toml(value)}" for key, value in entry.items()), ""]
    return "\n".join(lines)


def toml(value: Any) -> str:
    """A value as TOML. Raises `TypeError` for what JSON has not."""
    if isinstance(value, Mapping):
        table = cast("Mapping[str, Any]", value)
        return "{ " + ", ".join(f"{toml(key)} = {toml(one)}" for key, one in table.items()) + " }"
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return "[" + ", ".join(toml(one) for one in items) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    # What JSON escapes in a text, TOML escapes in the same way, but for this one character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
