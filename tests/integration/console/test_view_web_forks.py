"""A trajectory's tree of sequences in a real Chromium: wide and narrow, light and dark."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from tests.support.forked import forked
from tests.support.recorded_runs import Recorded
from tests.support.viewers import chromium, page_of, served

pytestmark = [pytest.mark.slow, pytest.mark.asyncio]


async def test_the_tree_leads_to_each_sequence(tmp_path: Path) -> None:
    run = Recorded(tmp_path / "forks")
    run.journal([forked(run)])
    with served(tmp_path) as (_, address):
        async with chromium() as browser:
            for width in (1400, 600):
                for scheme in ("light", "dark"):
                    place = "run=forks&trajectory=g0-0"
                    async with page_of(
                        browser, address, place, width=width, color_scheme=scheme
                    ) as page:
                        await walk(page)


async def walk(page: Page) -> None:
    rows = page.locator(".tree li")
    await expect(rows).to_have_count(5)
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    await expect(page.locator(".forest path.fork")).to_have_count(2)
    await expect(page.locator(".forest path.untrained")).to_have_count(1)
    body = page.locator("article .turns")
    await expect(body).to_contain_text("The second map shows a spring.")
    await expect(body).not_to_contain_text("No map helps.")
    await body.get_by_role("link", name="sequence 2").click()
    await expect(page.locator(".tree h2")).to_have_text("Sequence 2 of 5")
    await expect(body).not_to_contain_text("I look it up.")
    await expect(body.locator(".segment.untrained")).to_contain_text("No map helps.")
    assert "sequence=2" in page.url
    await rows.filter(has_text="searcher").get_by_role("link").click()
    await expect(page.locator(".tree")).to_contain_text("first call of another agent")
    await expect(body).to_contain_text("map one, map two, map three")
    focused = page.locator(".tree [aria-current]")
    await expect(focused).to_be_focused()
    colours = "(one) => getComputedStyle(one).fill"
    drawn = page.locator(".forest path.trained")
    agents = [await one.evaluate(colours) for one in await drawn.all()]
    assert len(agents) == 6 and len(set(agents)) == 2, "a colour for each agent"
    await page.go_back()
    await expect(page.locator(".tree h2")).to_have_text("Sequence 2 of 5")
