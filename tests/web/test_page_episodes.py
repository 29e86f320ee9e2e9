"""The page in a browser: the list of episodes, trajectories, comparisons, runs and plots."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import Served
from page_player import WATCH, play_out, playing
from page_tabs import WAIT, Tabs, forget_refusals, log_in
from patience import patient

from envport.client import Client

HOSTILE = f"{Path(__file__).parents[1]}/support/web_environments.py:HostileEnvironment"
CONTROL, PLAY, OTHER = (f"a-token-of-the-tests-{name}" for name in ("control", "play", "other"))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def gateway(store: Path) -> Iterator[Served]:
    with Served("catch", "showcase", f"hostile={HOSTILE}", "--store", str(store)) as served:
        yield served


def handle_of(gateway: Served, **labels: str) -> str:
    """The episode with these labels."""
    with Client(gateway.url) as client:
        return client.episodes(labels=labels)[0].episode_id


def column(tab: Any, name: str) -> list[str]:
    """A column of the list, from above."""
    place = [text.strip() for text in tab.locator("thead th").all_inner_texts()].index(name) + 1
    return [text.strip() for text in tab.locator(f"tbody td:nth-child({place})").all_inner_texts()]


def rows(tab: Any, number: int) -> None:
    tab.get_by_text(f"{number} episodes, page 1 of 1.").wait_for()


def test_a_running_episode_is_followed_step_by_step(gateway: Served, tabs: Tabs):
    with tabs.open(f"{gateway.url}/ui/episodes?labels=who%3Dfollowed") as tab:
        rows(tab, 0)
        with playing(gateway.url, labels={"who": "followed"}, task=0, seed=1) as episode:
            # The list is live, and leads to the episode.
            tab.locator("tbody a").click()
            tab.get_by_role("status").get_by_text("running").wait_for()
            tab.evaluate(WATCH)
            late: list[float] = []
            for number in range(1, 10):
                episode.call("move", {"direction": "stay"})
                answered = time.time() * 1000
                tab.locator(f"[data-step='{number}']").wait_for()
                late.append(tab.evaluate(f"window.shown['{number}']") - answered)
            # The page promises 0.3 s on a quiet machine.
            assert sorted(late)[len(late) // 2] < patient(0.3) * 1000, late
            tab.get_by_role("status").get_by_text("It terminated after 9 steps.").wait_for()
            seen = tab.get_by_role("region", name="What the player saw").inner_text()
            assert "Ball in column" in seen
            assert '"direction": "stay"' in seen
            assert "eward" not in seen
            unseen = tab.get_by_role("region", name="What the player did not see")
            assert unseen.locator("[data-reward-of='9']").inner_text() in ("Step 9: 1", "Step 9: -1")
            unseen.get_by_text("Metadata of the task").click()
            unseen.get_by_text('"paddle": 0').wait_for()
            # A reset is another run of the same episode.
        with Client(gateway.url) as client:
            client.reset(handle_of(gateway, who="followed"), seed=2)
        tab.get_by_text("Calls none of 0").wait_for()


def test_the_list_is_filtered_and_the_address_keeps_the_filter(gateway: Served, tabs: Tabs):
    for sample, moves in (("0", ()), ("1", ("right",))):
        with playing(gateway.url, labels={"who": "listed", "sample": sample}, task=0, seed=5) as episode:
            play_out(episode, *moves)
    with playing(gateway.url, "showcase", labels={"who": "listed"}) as running:
        running.call("show_mixed", {})
        with tabs.open(f"{gateway.url}/ui/episodes?labels=who%3Dlisted") as tab:
            rows(tab, 3)
            assert column(tab, "Environment") == ["showcase", "catch", "catch"]
            assert column(tab, "Status") == ["running", "terminated", "terminated"]
            rewards = [float(it) for it in column(tab, "Reward")[1:]]
            assert sorted(rewards) == [-1, 1]
            tab.get_by_label("Reward from").fill("0.5")
            tab.keyboard.press("Enter")
            rows(tab, 1)
            tab.reload()
            rows(tab, 1)
            assert column(tab, "Reward") == ["1"]
            tab.get_by_label("Reward from").fill("much")
            tab.keyboard.press("Enter")
            tab.get_by_role("alert").get_by_text("min_reward is 'much'; it has to be a number").wait_for()
            tab.goto(f"{gateway.url}/ui/episodes?labels=who%3Dlisted&live=yes&environment=showcase&age=600")
            rows(tab, 1)


def test_two_episodes_are_compared_beside_each_other(gateway: Served, tabs: Tabs):
    for sample, moves in (("left", ("stay", "left")), ("right", ("stay", "right"))):
        with playing(gateway.url, labels={"who": "compared", "side": sample}, task=0, seed=5) as episode:
            play_out(episode, *moves)
    with tabs.open(f"{gateway.url}/ui/episodes?labels=who%3Dcompared") as tab:
        rows(tab, 2)
        tab.get_by_role("button", name="Compare the two selected").click()
        tab.get_by_text("Select two episodes; 0 are selected.").wait_for()
        for box in tab.locator("tbody [role=checkbox]").all():
            box.click()
        tab.get_by_role("button", name="Compare the two selected").click()
        tab.get_by_text("The first difference is in step 2, at $.arguments.direction").wait_for()
        tab.locator(".ev-marked").nth(1).wait_for()
        same = handle_of(gateway, who="compared", side="left")
        tab.goto(f"{gateway.url}/ui/compare?left={same}&right={same}")
        tab.get_by_text("They do not differ.").wait_for()
        tab.goto(f"{gateway.url}/ui/compare?left={same}&right=ep_nobody")
        tab.get_by_text("There is no episode 'ep_nobody'").wait_for()


@pytest.mark.slow
def test_a_run_shows_its_groups_with_members_beside_each_other(gateway: Served, tabs: Tabs):
    for group, sample in (("a", "1"), ("a", "0"), ("b", "0")):
        labels = {"run": "grpo <b>", "group": group, "sample": sample}
        with playing(gateway.url, labels=labels, task=0, seed=5) as episode:
            play_out(episode)
    with tabs.open(f"{gateway.url}/ui/runs") as tab:
        tab.get_by_role("link", name="grpo <b>").click()
        tab.get_by_role("heading", name="Run grpo <b>").wait_for()
        group = tab.locator(".ev-members").nth(1)
        group.wait_for()
        assert [it.split("\n")[0] for it in group.locator(".ev-card").all_inner_texts()] == ["sample 0", "sample 1"]
        assert "2 members, mean reward" in tab.locator("#main").inner_text()
        for plot in ("Reward", "Length (steps)", "Duration (s)", "Outcomes"):
            tab.get_by_role("img", name=f"{plot} over time").locator("canvas").wait_for()
        tab.get_by_role("link", name="As a list").click()
        rows(tab, 3)


@pytest.mark.slow
def test_token_ids_and_logprobs_of_a_rollout_are_shown(gateway: Served, store: Path, tabs: Tabs):
    with playing(gateway.url, labels={"who": "trained"}) as episode:
        play_out(episode)
    handle = handle_of(gateway, who="trained")
    with tabs.open(f"{gateway.url}/ui/episodes/{handle}") as tab:
        tab.get_by_role("heading", name="Rewards").wait_for()
        assert not tab.get_by_text("Tokens and logprobs").count()
        with sqlite3.connect(store / "episodes.db", timeout=WAIT) as connection:
            body = '{"completion_ids": [11, 12], "logprobs": [-0.5, -1.25], "prompt_ids": [7], "model": "tiny"}'
            connection.execute("insert into attachments (handle, kind, body) values (?, 'rollout', ?)", (handle, body))
        tab.reload()
        tab.get_by_text("Tokens and logprobs of the rollout").click()
        table = tab.locator("table", has_text="completion_ids")
        table.wait_for()
        assert [row.split() for row in table.locator("tr").all_inner_texts()] == [
            ["completion_ids", "logprobs"],
            ["0", "11", "-0.5"],
            ["1", "12", "-1.25"],
        ]


def test_what_is_recorded_of_a_hostile_environment_is_not_run(gateway: Served, tabs: Tabs):
    labels = {"who": "<img src=x onerror='window.broken=true'>", "run": "of one"}
    with playing(gateway.url, "hostile", labels=labels) as episode:
        episode.call("speak", {"word": "<iframe src='https://example.invalid/'></iframe>"})
        episode.call("end", {})
        with tabs.open(f"{gateway.url}/ui/episodes?environment=hostile") as tab:
            rows(tab, 1)
            tab.locator("tbody a").click()
            tab.locator("[data-step='2']").wait_for()
            assert tab.locator("main img, main iframe, main script, main svg").count() == 0
            assert "<iframe src" in tab.locator("[data-step='1']").inner_text()
            tab.get_by_text("Diagnostics").click()
            tab.get_by_text('"hidden": "<script>').wait_for()
            assert tab.evaluate("window.broken") is None
    with tabs.open(f"{gateway.url}/ui/runs") as tab:
        run = tab.locator("li", has=tab.get_by_role("link", name="of one"))
        run.wait_for()
        assert run.inner_text() == "of one – 1 episode"


def test_holders_of_the_scope_play_see_their_episodes_without_rewards(tmp_path: Path, tabs: Tabs):
    tokens = tmp_path / "tokens.toml"
    tokens.write_text(
        f'[[tokens]]\nname = "me"\nscopes = ["control", "play"]\ntoken = "{CONTROL}"\n'
        f'[[tokens]]\nname = "me"\nscopes = ["play"]\ntoken = "{PLAY}"\n'
        f'[[tokens]]\nname = "other"\nscopes = ["read"]\ntoken = "{OTHER}"\n'
    )
    tokens.chmod(0o600)
    with Served(
        "catch", f"hostile={HOSTILE}", "--token-file", str(tokens), "--store", str(tmp_path / "store")
    ) as secured:
        for seed in (0, 1):
            with playing(secured.url, "hostile", token=CONTROL, seed=seed) as episode:
                episode.call("end", {})
        with playing(secured.url, token=CONTROL, labels={"who": "mine"}) as episode:
            play_out(episode)
        with Client(secured.url, token=CONTROL) as client:
            handle, one, other = (episode.episode_id for episode in client.episodes())
        path = f"{secured.url}/ui/episodes"
        with tabs.open(path) as tab:
            log_in(tab, PLAY)
            tab.get_by_role("link", name="Episodes").click()
            rows(tab, 3)
            for hidden in ("Reward", "Labels"):
                assert hidden not in tab.locator("thead").inner_text()
            tab.goto(f"{path}?min_reward=0")
            tab.get_by_text("your token does not show rewards").wait_for()
            assert "mine" not in tab.content()
            tab.goto(f"{secured.url}/ui/runs")
            tab.get_by_text("Runs are shown to tokens with the scope read or control.").wait_for()
            tab.goto(f"{path}/{handle}")
            tab.locator("[data-step='9']").wait_for()
            tab.get_by_text("Rewards are shown to tokens with the scope read or control.").wait_for()
            assert not tab.locator("[data-reward-of]").count()
            assert not tab.get_by_text("Metadata of the task").count()
            # Where the rewards differ would tell them.
            tab.goto(f"{secured.url}/ui/compare?left={one}&right={other}")
            tab.get_by_text("They do not differ.").wait_for()
            tab.get_by_role("button", name="Log out").click()
            log_in(tab, CONTROL)
            tab.get_by_role("heading", name="Environments").wait_for()
            tab.goto(f"{secured.url}/ui/compare?left={one}&right={other}")
            tab.get_by_text("The first difference is in step 1, at $.reward").wait_for()
        with tabs.open(path) as tab:
            log_in(tab, OTHER)
            tab.get_by_role("link", name="Episodes").click()
            rows(tab, 0)
            tab.goto(f"{path}/{handle}")
            tab.get_by_text("There is no such episode among those that you may see.").wait_for()
    forget_refusals(tabs)


@pytest.mark.slow
def test_a_gateway_stops_although_a_page_is_open(tabs: Tabs, tmp_path: Path):
    with Served("catch", "--store", str(tmp_path)) as served, tabs.open(f"{served.url}/ui/episodes") as tab:
        rows(tab, 0)
        began = time.monotonic()
        assert served.stop() == 0
        assert time.monotonic() - began < WAIT
        assert "Traceback" not in served.log
    tabs.errors.clear()


@pytest.mark.slow
def test_a_trajectory_of_ten_thousand_calls_is_shown_in_parts(gateway: Served, tabs: Tabs):
    with playing(gateway.url, "hostile", labels={"who": "long"}) as episode:
        for _ in range(10_000):
            episode.call("much", {"megabytes": 0})
        handle = handle_of(gateway, who="long")
        with tabs.open(f"{gateway.url}/ui/episodes/{handle}") as tab:
            # One that runs is shown from its latest calls, and followed.
            tab.get_by_text("Calls 9,951 to 10,000 of 10,000, followed live").wait_for()
            assert tab.locator("[data-step]").count() == 50
            tab.get_by_role("button", name="First").click()
            tab.get_by_text("Calls 1 to 50 of 10,000").wait_for()
            tab.get_by_role("button", name="Later").click()
            tab.get_by_text("Calls 51 to 100 of 10,000").wait_for()
            episode.call("much", {"megabytes": 0})
            tab.get_by_text("Calls 51 to 100 of 10,001").wait_for()
            tab.get_by_role("button", name="Latest").click()
            tab.get_by_text("Calls 9,952 to 10,001 of 10,001, followed live").wait_for()
            tab.goto(f"{gateway.url}/ui/compare?left={handle}&right={handle}")
            tab.get_by_text("They do not differ.").wait_for(timeout=10 * WAIT * 1000)
