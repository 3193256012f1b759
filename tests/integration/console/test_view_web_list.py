"""The list of runs in a real Chromium: it follows the runs, sorts, filters and compares them."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from tests.support import run_folders as written
from tests.support.viewers import chromium, page_of, served

pytestmark = [pytest.mark.slow, pytest.mark.asyncio]


async def test_the_list_follows_the_runs(tmp_path: Path) -> None:
    written.whole(tmp_path / "good")
    written.whole(tmp_path / "worse", after=0.6, seed=2)
    written.course(tmp_path / "worse", ended=130)
    with served(tmp_path) as (_, address):
        async with chromium() as browser:
            async with page_of(browser, address, "") as page:
                await follow(page, tmp_path)
            for scheme in ("light", "dark"):
                async with page_of(browser, address, "", width=600, color_scheme=scheme) as page:
                    await expect(page.locator(".spark")).to_have_count(3)
                    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")


async def follow(page: Page, home: Path) -> None:
    rows = page.locator("tbody tr")
    await expect(rows).to_have_count(2)
    await expect(rows.nth(0).locator(".badge")).to_have_text("done")
    await expect(rows.nth(1).locator(".badge")).to_have_text("stopped")
    await expect(rows.nth(0)).to_contain_text("held out 0.2 → 0.9")

    new = home / "by-hand"

    def begin() -> None:
        written.lines(new / "learner.jsonl", [written.step(n, reward=-1.0) for n in (1, 2)])
        (new / "engine.jsonl").touch()

    await asyncio.to_thread(begin)
    await expect(rows).to_have_count(3)
    await expect(rows.nth(2).locator(".badge").first).to_have_text("running")
    await asyncio.to_thread(os.utime, new / "engine.jsonl", (1.0, 1.0))
    await expect(rows.nth(2).locator(".badge").first).to_have_text("unknown")

    await page.get_by_role("button", name="reward").click()
    await page.get_by_role("button", name="reward").click()
    await expect(page.locator("th[aria-sort]")).to_have_attribute("aria-sort", "ascending")
    await expect(rows.nth(0)).to_contain_text("by-hand")
    await page.keyboard.press("/")
    await page.keyboard.type("stopped")
    await expect(rows).to_have_count(1)
    await page.reload()
    await expect(rows).to_have_count(1)
    await page.get_by_label("find a run").fill("")
    await expect(rows).to_have_count(3)
    for name in ("good", "by-hand"):
        await page.get_by_label(f"compare {name}").check()
    await page.get_by_role("link", name="Compare 2 runs").click()
    await expect(page.get_by_label("runs").locator(":checked")).to_have_count(2)
