"""`toolwright view --web` in a real Chromium: what a person sees, and what a policy cannot do."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from learner.config.objective import Advantage, Credit, Kl
from tests.support.recorded_runs import CALL, Recorded
from tests.support.viewers import chromium, page_of, served
from tests.support.waiting import PATIENCE
from toolwright import types as t

pytestmark = [pytest.mark.quick, pytest.mark.asyncio(loop_scope="module")]

SCRIPT = "<script>window.ran = 1</script><img src=x onerror='window.ran = 1'><b>bold</b>"
HOSTILE = f"{SCRIPT} \x1b[31mred\x1b[0m \u202eexe.gnp\u202c javascript:window.ran=1 \0 {{{{7*7}}}}"
LABEL = f"\x1b[31m{SCRIPT}"
MANY = 130


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A served viewer and the runs that it shows."""

    address: str
    good: Recorded
    grows: Recorded


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    home = tmp_path_factory.mktemp("viewer")
    good = Recorded(home / "good")
    call = replace(CALL, tool=SCRIPT, outcome=replace(CALL.outcome, observation=HOSTILE))
    hostile = good.trajectory("g0-0", wrote=HOSTILE, calls=(call,), reward=0.0)
    hostile = replace(hostile, task=replace(hostile.task, data_source=LABEL))
    parts = (t.RewardPart(name="right", value=1.0), t.RewardPart(name="ran", value=0.5, turn=0))
    other = good.trajectory("g0-1", reward_parts=parts)
    good.journal([hostile, replace(other, task=replace(other.task, data_source="plain"))])
    learner = {"advantage": Advantage(), "credit": Credit(turns="position"), "kl": Kl()}
    tables = {name: table.model_dump(mode="json") for name, table in learner.items()}
    (good.folder / "learner.resolved.json").write_text(
        json.dumps({"learner": tables}), encoding="utf-8"
    )
    good.journal(*([good.trajectory(f"g{n}-0", wrote=f"number {n}")] for n in range(1, MANY)))
    Recorded(home / "empty")
    broken = Recorded(home / "broken")
    broken.journal([broken.trajectory()])
    (broken.folder / "journal.sqlite").write_bytes(b"\xde\xad" * 5000)
    grows = Recorded(home / "grows")
    with served(home) as (said, address):
        assert said.startswith("4 runs at ")
        yield Shown(address=address, good=good, grows=grows)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as browser:
        yield browser


async def rows(page: Page, count: int) -> None:
    await expect(page.locator("tbody tr")).to_have_count(count)


async def test_the_keyboard_leads_from_the_search_to_a_trajectory_and_back(
    browser: Browser, shown: Shown
) -> None:
    async with page_of(browser, shown.address, "run=good") as page:
        await expect(page.locator("tbody tr").first).to_contain_text("number 129")
        await page.keyboard.press("/")
        await page.keyboard.type("number 77")
        await rows(page, 1)
        assert "text=number+77" in page.url
        await page.keyboard.press("Escape")
        await page.keyboard.press("j")
        await page.keyboard.press("Enter")
        await expect(page.locator("h1")).to_have_text("What is 6 times 7?")
        assert "trajectory=g77-0" in page.url
        await page.keyboard.press("Escape")
        await rows(page, 1)


async def test_what_a_policy_wrote_is_shown_and_does_nothing(
    browser: Browser, shown: Shown
) -> None:
    async with page_of(browser, shown.address, "run=good&text=bold") as page:
        await expect(page.locator("tbody tr")).to_contain_text("<script>window.ran = 1</script>")
        await page.locator("tbody a").click()
        body = page.locator("article")
        await expect(body).to_contain_text("onerror='window.ran = 1'")
        await expect(body).to_contain_text("␛")
        await expect(body).to_contain_text("U+202E")
        await expect(body).to_contain_text("␀")
        assert (
            await page.evaluate("document.querySelectorAll('article img, article script').length")
            == 0
        )
        assert await page.evaluate("document.body.innerText.includes('\\u202e')") is False
        assert await page.evaluate("window.ran") is None


async def test_a_string_becomes_neither_markup_nor_code(browser: Browser, shown: Shown) -> None:
    """Also by a mistake of ours: the browser is told to refuse it."""
    context = await browser.new_context()
    page = await context.new_page()
    await page.goto(shown.address)
    for attempt in (
        "document.body.innerHTML = '<b>x</b>'",
        "document.body.insertAdjacentHTML('beforeend', '<b>x</b>')",
        "new DOMParser().parseFromString('<b>', 'text/html')",
        "setTimeout('window.ran = 1', 0)",
    ):
        refused = f"() => {{ try {{ {attempt}; return false }} catch {{ return true }} }}"
        assert await page.evaluate(refused), attempt
    await page.evaluate(
        "() => { const made = document.createElement('script'); made.append('window.ran = 1');"
        " document.body.append(made) }"
    )
    assert await page.evaluate("window.ran") is None
    await context.close()


async def test_tokens_calls_and_the_group_of_a_trajectory(browser: Browser, shown: Shown) -> None:
    async with page_of(browser, shown.address, "run=good&trajectory=g0-1") as page:
        await expect(page.locator(".call summary")).to_contain_text("queued 1 ms, ran 250 ms")
        token = page.locator(".by-model .text span").nth(3)
        await expect(token).to_have_attribute("title", re.compile(r"token \d+ p = 0\.37"))
        await expect(token).to_have_class("s6")
        await expect(page.locator(".members li")).to_have_count(2)
        await page.get_by_role("link", name="beside").click()
        await expect(page.locator("article")).to_have_count(2)
        await page.reload()
        await expect(page.locator("article")).to_have_count(2)


async def test_a_strangers_label_is_text_where_it_is_drawn_and_chosen(
    browser: Browser, shown: Shown
) -> None:
    async with page_of(browser, shown.address, "run=good") as page:
        labels = page.get_by_label("label", exact=True)
        await expect(labels.locator("option")).to_have_count(3)
        names = await labels.locator("option").all_text_contents()
        (name,) = [one for one in names if one.startswith("␛[31m<script>")]
        await labels.select_option(name)
        await rows(page, 1)
        await expect(page.locator("tbody tr")).to_contain_text("<script>")
        await page.reload()
        await rows(page, 1)
        await page.get_by_role("link", name="Curves").click()
        drawn = page.get_by_role("figure").filter(has_text="Reward by data_source")
        await expect(drawn.locator(".values li")).to_have_count(2)
        await expect(drawn).to_contain_text("<script>window.ran = 1")
        await expect(drawn.locator("polygon.band")).to_have_count(2)
        await expect(page.locator("#by")).to_have_value("data_source")
        assert await page.locator("#main img, #main script").count() == 0
        assert await page.evaluate("window.ran") is None


async def test_an_empty_run_and_a_broken_one_say_so(browser: Browser, shown: Shown) -> None:
    async with page_of(browser, shown.address, "run=empty") as page:
        await expect(page.locator(".line")).to_contain_text("no trajectories yet")
        await page.get_by_label("run", exact=True).select_option("broken")
        await expect(page.locator(".remarks")).to_contain_text("1 remark")
        await page.locator(".remarks summary").click()
        await expect(page.locator(".remarks li")).to_contain_text("journal.sqlite cannot be read")


async def test_rows_come_while_one_looks(browser: Browser, shown: Shown) -> None:
    async with page_of(browser, shown.address, "run=grows") as page:
        await expect(page.locator(".line")).to_contain_text("no trajectories yet")
        await asyncio.to_thread(shown.grows.journal, [shown.grows.trajectory("g5-0")])
        await rows(page, 1)
        await expect(page.locator(".state")).to_have_text("1 trajectory")


async def test_a_token_is_asked_for_or_comes_in_the_link(browser: Browser, tmp_path: Path) -> None:
    recorded = Recorded(tmp_path / "kept")
    recorded.journal([recorded.trajectory()])
    with served(tmp_path, token="secret") as (_, address):
        context = await browser.new_context()
        context.set_default_timeout(PATIENCE * 1000)
        page = await context.new_page()
        await page.goto(address)
        await page.get_by_label("The token").fill("secret")
        await page.keyboard.press("Enter")
        await rows(page, 1)
        page = await context.new_page()
        await page.goto(f"{address}/?run=kept#token=secret")
        await rows(page, 1)
        assert page.url == f"{address}/?run=kept", "the token is in no address any more"
        await context.close()
