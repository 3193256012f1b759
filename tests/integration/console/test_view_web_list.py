"""The list of runs in a real Chromium, and the ways from a run's figures to its trajectories."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from console.record.course import CourseLog, ProcessRecord
from tests.support import run_folders as written
from tests.support.recorded_runs import Recorded
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


async def test_figures_lead_to_trajectories_and_logs_follow(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path / "run")
    written.whole(recorded.folder)
    recorded.journal([recorded.trajectory("g0-0"), recorded.trajectory("g0-1", reward=0.0)])
    for step, reward in ((0, 1.0), (50, 0.0)):
        rows = [{"index": n, "reward": reward if n else 1.0, "task_id": f"q{n}"} for n in (0, 1)]
        recorded.rows("asked", step, rows)
    log = recorded.folder / "console/logs/engine.log"
    log.parent.mkdir(exist_ok=True)
    log.write_text("<b>begin</b>\n", encoding="utf-8")
    with CourseLog(recorded.folder) as course:
        course.process(
            ProcessRecord(name="engine", what="", command="x", state="ended", log=str(log))
        )
    with served(tmp_path) as (_, address):
        async with chromium() as browser:
            async with page_of(browser, address, "run=run&page=evaluations") as page:
                await questions(page)
                await point(page, f"{address}/?run=run&page=curves")
                await page.goto(f"{address}/?run=run&page=run")
                await page.get_by_text("log of engine").click()
                await expect(page.locator(".log pre")).to_have_text("<b>begin</b>\n")
                with log.open("a", encoding="utf-8") as file:
                    file.write("more\n")
                await expect(page.locator(".log pre")).to_contain_text("more")
            for place in ("evaluations", "run", "curves", "timeline"):
                async with page_of(
                    browser, address, f"run=run&page={place}", width=600, color_scheme="dark"
                ) as page:
                    await expect(page.locator("#main h2, #main h1").first).to_be_visible()
                    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")


async def questions(page: Page) -> None:
    await expect(page.locator(".line")).to_contain_text("1 question got a lower reward, 0 a higher")
    await page.locator("tbody a").click()
    await expect(page.locator("article")).to_have_count(2)
    assert "trajectory=asked%40ab.0%2F1" in page.url


async def point(page: Page, curves: str) -> None:
    await page.goto(curves)
    heading = page.get_by_role("heading", name="Distribution of rewards", exact=True)
    drawing = page.locator(".chart", has=heading).locator(".drawing")
    await expect(drawing.locator("polygon")).to_have_count(2)
    await drawing.click()
    await expect(page.locator(".rows tbody tr")).to_have_count(2)
    assert "suite=training&step_from=3" in page.url
    await page.goto(curves)
    held_out = page.locator(".chart", has=page.get_by_role("heading", name="held out", exact=True))
    await held_out.locator(".drawing").focus()
    await page.keyboard.press("Home")
    await page.keyboard.press("Enter")
    await expect(page.locator(".rows tbody tr")).to_have_count(3)
    assert "suite=heldout-sampled&step_from=0&step_to=0" in page.url
