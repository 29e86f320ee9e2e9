"""`envport.toml`: what `envport serve` and the other commands take out of it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx2
import pytest
from command_line import TOKEN, Served, envport, envport_here, player, refused, text

from envport.cli.groups import option_fields
from envport.cli.serve_file import _defaults
from envport.cli.serve_options import SERVE_GROUPS
from envport.environment_file import EnvironmentFile
from envport.errors import ConfigurationError, EnvironmentNotFound
from envport.registry import load

SHOP = '''
from envport import Environment, Task, tool


class Shop(Environment):
    """Buy things."""

    max_steps = 9

    def __init__(self, currency: str = "euro", prices: dict[str, float] = {}, open_at: int = 8):
        self.currency, self.prices, self.open_at = currency, prices, open_at

    def reset(self, *, seed: int, task: Task | None) -> str:
        return f"{self.currency} {self.prices} {self.max_steps}"

    @tool
    def buy(self) -> str:
        """Buy."""
        return "bought"
'''

FILE = """
[serve]
max-episodes = 3
allowed-origin = ["https://app.example.com"]
token-file = "tokens.toml"

[environments.small]
reference = "catch"
options = { rows = 5, columns = 5 }

[environments.shop]
reference = "./shop.py:Shop"

[environments.shop.options]
currency = "yen"
prices = { apple = 1.5 }

[environments.shop.limits]
max-steps = 2
max-episodes = 1
"""

TOKENS = f'[[tokens]]\nname = "me"\nscopes = ["control", "play"]\ntoken = "{TOKEN}"\n'
BEARER = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "tokens.toml").write_text(TOKENS)
    (tmp_path / "envport.toml").write_text(FILE)
    return tmp_path


def test_the_file_in_the_current_folder_is_read_and_said_to_be(folder: Path) -> None:
    with Served(cwd=folder) as served:
        assert "\nRead envport.toml.\n" in served.greeting
        found = {it["name"]: it for it in httpx2.get(f"{served.url}/environments", headers=BEARER).json()}
        assert list(found) == ["small", "shop"]
        assert found["small"]["options"] == {"rows": 5, "columns": 5}
        limits = {"max_steps": 2, "max_episodes": 1, "places": 1, "idle_seconds": 1800.0}
        assert found["shop"]["limits"].items() >= limits.items()
        # Its settings are in force: the tokens, the capacity, the origin.
        assert httpx2.get(f"{served.url}/environments").status_code == 401
        ready = httpx2.get(f"{served.url}/readyz", headers=BEARER | {"Origin": "https://app.example.com"})
        assert ready.json()["capacity"] == 3

        async def play() -> list[str]:
            async with player(f"{served.url}/environments/shop/mcp", headers=BEARER) as client:
                opened = await client.call_tool("start_episode", {})
                words = {"episode_id": opened.meta["envport/episode_id"]}
                return [text(opened), *[text(await client.call_tool("buy", words)) for _ in range(3)]]

        said = asyncio.run(play())
    assert "yen {'apple': 1.5} 2" in said[0]
    assert said[1] == "bought"
    assert "over" in said[3]


def test_flags_and_references_override_the_file(folder: Path) -> None:
    (folder / "sub").mkdir()
    words = ("mine=shop", "counter", "--config", "../envport.toml", "--max-episodes", "7")
    with Served(*words, cwd=folder / "sub") as served:
        ready = httpx2.get(f"{served.url}/readyz", headers=BEARER).json()
        assert (ready["capacity"], list(ready["environments"])) == (7, ["mine", "counter"])
        assert "Read ../envport.toml." in served.greeting


def test_no_file_is_read_if_another_is_named(folder: Path) -> None:
    with Served("counter", "--config", "/dev/null", cwd=folder) as served:
        assert "Read " not in served.greeting
        assert httpx2.get(f"{served.url}/readyz").json()["capacity"] == 10_000


def test_other_commands_take_its_names(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert "shop keeps the authoring contract" in envport_here("check", "shop").stdout
    assert "currency=yen" in envport_here("describe", "shop").stdout
    assert "yen" in envport("play", "shop", stdin="\n", cwd=folder).stdout
    attached = envport_here("attach", "--stdio", "--json", "shop").stdout
    assert f"shop={folder}/envport.toml:shop" in attached
    # From Python, and in any other folder, with the path.
    monkeypatch.chdir("/")
    assert load(f"{folder}/envport.toml:shop").options["currency"] == "yen"
    assert load(f"mine={folder}/envport.toml:small").name == "mine"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("server = {}", "envport.toml has an unknown key 'server'; allowed: serve, environments"),
        ("serve = 3", r"serve has to be a table: \[serve\]"),
        ("[serve", "envport.toml is not TOML"),
        (
            "[serve]\nmax_episodes = 3",
            r"\[serve\] has an unknown key 'max_episodes'; allowed: host, port, .*max-ep",
        ),
        ("[serve]\nport = '80'", r"\[serve\]: port is '80'; it has to be an integer at least 0, at most 65"),
        ("[serve]\nport = 70000", r"\[serve\]: port is 70000; it has to be an integer at least 0, at most 65"),
        ("[serve]\nallow-unauthenticated = 1", "allow-unauthenticated is 1; it has to be a boolean"),
        ("[serve]\nallowed-host = 'x'", "allowed-host is 'x'; it has to be"),
        ("[serve]\nlog-format = 'xml'", "log-format is 'xml'; it has to be one of"),
        ("[environments]\nx = 3", r"\[environments.x\] has to be a table"),
        ("[environments.x]\noptions = {}", r"\[environments.x\] needs the key 'reference'"),
        (
            "[environments.x]\nreference = 'catch'\nrows = 3",
            r"\[environments.x\] has an unknown key 'rows'; allowed: ",
        ),
        (
            "[environments.x]\nreference = 'catch'\nlimits = {steps = 3}",
            r"\[environments.x.limits\] has an unknown key 'steps'; allowed: max-episodes, max-steps",
        ),
        (
            "[environments.x]\nreference = 'catch'\nlimits = {max-steps = 0}",
            "max-steps: input should be greater",
        ),
        (
            "[environments.x]\nreference = 'catch'\noptions = {rows = 'many'}",
            "option 'rows' is 'many'; it has to be",
        ),
        ("[environments.x]\nreference = 'catch'\noptions = {row = 1}", "environment 'x' has no option 'row'; its opt"),
        ("[environments.x]\nreference = 'catch?rows=5'\noptions = {rows = 5}", "its options are given twice"),
        ("[environments.x]\nreference = 'y=catch'", "'y=catch' gives a name of its own; .* so write 'catch'"),
        ("[environments.x]\nreference = 'other.toml:y'", "cannot name an environment of a file"),
        ("[environments.x]\nreference = './no.py:C'", r"there is no file .*/no\.py"),
        ("[environments.'a b']\nreference = 'catch'", "'a b' cannot name an environment"),
        (
            "[environments.x]\nreference = 'catch'\nsecrets = {KEY = 'hush-hush'}",
            r"'KEY' in the text, which is refused: write KEY = \{ variable = .NAME. \} or KEY = \{ file = .PATH. \}",
        ),
        (
            "[environments.x]\nreference = 'catch'\nsecrets = {KEY = {}}",
            "secret 'KEY' of 'x': it needs either",
        ),
        (
            "[environments.x]\nreference = 'catch'\nsecrets = {KEY = {value = 'hush-hush'}}",
            r"\[environments.x.secrets.KEY\] has an unknown key 'value'; allowed: variable, file",
        ),
        (
            "[environments.x]\nreference = 'catch'\nsecrets = {KEY = {variable = 'NO_SUCH_VARIABLE'}}",
            "the variable NO_SUCH_VARIABLE is not set",
        ),
        ("[environments.x]\nreference = 'catch'\nsecrets = {KEY = {file = 'none'}}", "cannot be read: No such file"),
    ],
)
def test_each_mistake_names_the_key_the_table_and_what_is_allowed(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "envport.toml"
    path.write_text(text)

    def served() -> None:
        file = EnvironmentFile.read(path)
        _defaults(file, SERVE_GROUPS)
        for name in file.tables:
            load(file.reference(name))

    with pytest.raises(ConfigurationError, match=complaint) as caught:
        served()
    assert "\n" not in str(caught.value).replace("TOML: ", "")
    assert "hush-hush" not in str(caught.value)


def test_where_names_of_the_file_are_not_read_the_message_says_what_to_write(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    with pytest.raises(EnvironmentNotFound, match=r"; write \./envport\.toml:small for the one in envport\.toml$"):
        load("small")
    (folder / "envport.toml").write_text("[")
    with pytest.raises(EnvironmentNotFound, match=r"scheme:rest$"):
        load("small")


def test_a_task_that_cannot_be_made_is_said_with_the_line_that_made_it(tmp_path: Path) -> None:
    (tmp_path / "odd.py").write_text("from envport import Task\n\nTASK = Task(id='a', prompt=5)\n")
    line = refused("check", "./odd.py:Odd", cwd=tmp_path)
    assert "cannot be loaded: Task.prompt: a prompt cannot be of type int; allowed: text, or" in line
    assert line.rstrip().endswith(f"({tmp_path}/odd.py, line 3)")


def test_a_mistake_stops_the_command(folder: Path) -> None:
    (folder / "envport.toml").write_text("[serve]\nprot = 3")
    assert "envport.toml, [serve] has an unknown key 'prot'" in refused("serve", cwd=folder)
    assert "nowhere.toml cannot be read" in refused("serve", "--config", "nowhere.toml", cwd=folder)
    assert "has no environment 'x'; it has: none" in refused("check", "./envport.toml:x", cwd=folder)


def test_every_option_of_serve_can_be_in_the_file(tmp_path: Path) -> None:
    """Each option is declared once, and the file knows it from there."""
    lines: list[str] = []
    for field in (field for group in SERVE_GROUPS for field in option_fields(group)):
        value = field.default if not hasattr(field.default, "value") else field.default.value
        written = {True: "true", False: "false"}.get(value, value) if isinstance(value, bool) else value
        if isinstance(value, str):
            written = f'"{value}"'
        if value is not None:
            lines.append(f"{field.name.replace('_', '-')} = {'[]' if value == () else written}")
    path = tmp_path / "envport.toml"
    path.write_text("[serve]\n" + "\n".join(lines))
    assert len(_defaults(EnvironmentFile.read(path), SERVE_GROUPS)) == len(lines) == 20
