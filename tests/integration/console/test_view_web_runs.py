"""The viewer's pages of runs in a real Chromium: the list, a run as a whole, and its curves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, Page, expect

from tests.support import run_folders as written
from tests.support.viewers import chromium, page_of, served

pytestmark = [pytest.mark.quick, pytest.mark.asyncio(loop_scope="module")]

HOSTILE = "<img src=x onerror='window.ran=1'>\u202e\x1b[31m" + "long" * 40


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A served viewer, and the folder of a run that grows."""

    address: str
    grows: Path


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    home = tmp_path_factory.mktemp("viewer")
    written.whole(home / "a")
    written.whole(home / "b", after=0.6, seed=2)
    names = {
        HOSTILE: 1.0,
        f"measured/{HOSTILE}": 2.0,
        f"stop/{HOSTILE}": 3,
        "measured/__proto__": 4,
    }
    hostile = home / "hostile"
    written.lines(hostile / "learner.jsonl", (written.step(n, **names) for n in range(1, 9)))
    written.lines(
        hostile / "evaluations.jsonl",
        (written.evaluation(HOSTILE, at, 1e300, parts={"__proto__": at}) for at in (0, 8)),
    )
    with (hostile / "learner.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"step": 9, "rew')
    (home / "empty").mkdir()
    (home / "empty/engine.jsonl").touch()
    written.lines(home / "grows/learner.jsonl", [written.step(1)])
    with served(home) as (said, address):
        assert said.startswith("5 runs at ")
        yield Shown(address=address, grows=home / "grows/learner.jsonl")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as browser:
        yield browser


def chart(page: Page, title: str) -> Locator:
    return page.locator(".chart", has=page.get_by_role("heading", name=title, exact=True))


async def test_the_list_tells_of_each_run_and_leads_to_its_pages(
    browser: Browser, shown: Shown
) -> None:
    async with page_of(browser, shown.address, "") as page:
        row = page.locator("tbody tr", has=page.get_by_role("link", name="a", exact=True))
        await expect(row).to_contain_text("Held-out success rose from 20% to 90%")
        await expect(row).to_contain_text("50 of 50")
        await row.get_by_role("link", name="a", exact=True).click()
        await expect(page.locator("h1")).to_have_text("Held-out success rose from 20% to 90%")
        await expect(page.locator("article")).to_contain_text("reinforcement learning")
        await page.locator("#keys summary").click()
        await page.get_by_label("find in the recipe").fill("optimizer lr")
        await expect(page.locator(".keys tr")).to_have_text(["learner.optimizer.lr0.0001"])
        await page.get_by_role("link", name="Curves").click()
        await expect(chart(page, "Entropy")).to_be_visible()
        assert "run=a&page=curves" in page.url


async def test_a_curve_tells_its_values_to_the_pointer_and_to_the_keyboard(
    browser: Browser, shown: Shown
) -> None:
    async with page_of(browser, shown.address, "run=a&page=curves") as page:
        heldout = chart(page, "held out")
        await expect(heldout.locator(".values li").first).to_have_text("sampled0.9 ± 0.01")
        await expect(heldout.locator("line.error")).to_have_count(4)
        reward = chart(page, "Reward and its parts")
        await reward.locator(".drawing").focus()
        await page.keyboard.press("Home")
        await expect(reward.locator(".at")).to_have_text("step 1")
        for _ in range(9):
            await page.keyboard.press("ArrowRight")
        await expect(reward.locator(".values li").first).to_have_text("reward0.2")
        await expect(heldout.locator(".at")).to_have_text("step 10")
        await expect(heldout.locator(".values li").first).to_have_text("sampled0.2 ± 0.01 at 0")
        box = await reward.locator(".drawing").bounding_box()
        await page.mouse.move(box["x"] + box["width"] - 5, box["y"] + 40)
        await expect(reward.locator(".at")).to_have_text("step 50")
        await page.mouse.move(5, 5)
        await expect(reward.locator(".at")).to_have_text("mean of the batch")


async def test_names_of_a_stranger_are_text(browser: Browser, shown: Shown) -> None:
    for width in (1400, 600):
        async with page_of(
            browser,
            shown.address,
            "run=hostile&page=curves&section=others&section=suites",
            width=width,
        ) as page:
            await expect(page.get_by_role("heading", name="<img src=x").first).to_be_visible()
            await expect(page.locator(".chart .odd").first).to_have_text("U+202E")
            await page.goto(f"{shown.address}/?run=hostile&page=run")
            await expect(page.locator("article")).to_contain_text("1 line is no metrics")
            assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            assert await page.locator("#main img, #main script").count() == 0
            assert await page.evaluate("window.ran") is None


async def test_an_empty_run_says_so_and_a_growing_one_is_followed(
    browser: Browser, shown: Shown
) -> None:
    async with page_of(browser, shown.address, "run=empty&page=curves") as page:
        await expect(page.locator(".line")).to_contain_text("No step has been made yet")
        await page.get_by_label("run", exact=True).select_option("grows")
        reward = chart(page, "Reward and its parts")
        await expect(reward.locator(".values li").first).to_have_text("reward0.02")
        await reward.locator(".drawing").focus()

        def grow() -> None:
            with shown.grows.open("a", encoding="utf-8") as file:
                file.write(json.dumps(written.step(2, reward=0.75)) + "\n")

        await asyncio.to_thread(grow)
        await expect(reward.locator(".values li").first).to_have_text("reward0.75")
        focused = "document.activeElement.closest('.chart')?.querySelector('h3').textContent"
        assert await page.evaluate(focused) == "Reward and its parts", "who stands on it still does"
