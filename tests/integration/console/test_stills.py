"""Report, comparison and ladder as files in a real Chromium without a network."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, Page, expect
from typer.testing import CliRunner

from console.ablate.results.page import render
from console.cli import app
from console.record.files import MEMORY_PAGE
from console.report.writing import dumps
from memory.memory import Memory
from memory.report.growth import growth
from memory.report.page import render as memory_page
from memory.search.embedding import hashing
from memory.store.volatile import VolatileLog
from tests.support import ladders, run_folders
from tests.support.tool_memory import registering, tool
from tests.support.viewers import chromium, opened

pytestmark = [pytest.mark.quick, pytest.mark.asyncio(loop_scope="module")]

HOSTILE = "</script><img src=x onerror='window.ran=1'>\u202e\x1b[31m"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as browser:
        yield browser


def written(home: Path, command: str, *runs: Path) -> str:
    """The address of the page that the command writes."""
    page = home / "page.html"
    done = CliRunner().invoke(app, [command, *map(str, runs), "--output", str(page)])
    assert done.exit_code == 0, done.output
    return page.as_uri()


def chart(page: Page, title: str) -> Locator:
    return page.locator(".chart", has=page.get_by_role("heading", name=title, exact=True))


async def test_a_report_is_read_without_a_server(browser: Browser, tmp_path: Path) -> None:
    run = run_folders.whole(tmp_path / 'a & "b" #1')
    (run / MEMORY_PAGE).write_text("<p>tools</p>", encoding="utf-8")
    address = written(tmp_path, "report", run)
    for width, colours in ((1400, "light"), (600, "dark")):
        async with opened(
            browser, address, width=width, color_scheme=colours, offline=True
        ) as page:
            await expect(page.locator("h1")).to_have_text("Held-out success rose from 20% to 90%")
            await expect(page.locator(".drawing.wide .dot")).to_have_count(7)
            first = page.locator("tbody tr").first
            await expect(first).to_contain_text("held out1,0240.2 ± 0.010.9 ± 0.010.25 ± 0.01")
            entropy = chart(page, "Entropy")
            await entropy.locator(".drawing").focus()
            await page.keyboard.press("Home")
            await expect(entropy.locator(".at")).to_have_text("step 1")
            await expect(page.locator(".trace").first).to_contain_text("wrong, it is 42")
            assert await page.evaluate("document.documentElement.scrollWidth") == width
            await page.get_by_role("link", name="the tool memory").click()
            await expect(page.locator("p")).to_have_text("tools")


async def test_runs_are_compared_by_step_and_by_hours(browser: Browser, tmp_path: Path) -> None:
    runs = [
        run_folders.whole(tmp_path / name, after=after) for name, after in (("a", 0.9), ("b", 0.4))
    ]
    async with opened(browser, written(tmp_path, "compare", *runs), offline=True) as page:
        reward = chart(page, "Reward and its parts: reward")
        await reward.scroll_into_view_if_needed()
        await expect(reward.locator("polyline.measured")).to_have_count(2)
        await expect(reward.locator("text").last).to_have_text("50")
        await page.get_by_label("by hours of training").check()
        await reward.locator(".drawing").focus()
        await page.keyboard.press("End")
        await expect(reward.locator(".at")).to_have_text("hours 0.02778")
        await expect(page.locator("table").first).to_contain_text(
            "0.2 ± 0.01 at 0, 0.4 ± 0.01 at 50"
        )


async def test_a_ladder_shows_its_differences_and_curves(browser: Browser, tmp_path: Path) -> None:
    found = ladders.ladder(ladders.write_recipe(tmp_path), seeds=3)
    for seed in found.seeds:
        for name, late in (("base", 4), ("slow", 12), ("no credit", 4)):
            ladders.climb(found, seed, name, height=0.8, late=late)
    file = tmp_path / "page.html"
    file.write_text(render(json.loads(dumps(ladders.told(found)))), encoding="utf-8")
    async with opened(browser, file.as_uri(), offline=True) as page:
        await expect(page.locator(".found").first).to_contain_text("lower")
        await expect(page.locator(".drawing.wide polygon.band")).to_have_count(3)
        link = page.get_by_role("link", name="no credit").first
        assert await link.get_attribute("href") == "no%20credit/seed-1/report.html"


async def test_a_memory_shows_its_growth_and_its_graph(browser: Browser, tmp_path: Path) -> None:
    memory = Memory(VolatileLog(), hashing)
    for number in range(6):
        made = tool(f"t{number}", f"word{number} <b>thing{number}")
        edges = ((f"t{number - 1}", f"t{number}", 1),) if number else ()
        memory.merge_group(registering(f"g{number}", made, edges=edges, step=number))
    file = tmp_path / "page.html"
    file.write_text(memory_page(growth(memory.changes), store="store"), encoding="utf-8")
    async with opened(browser, file.as_uri(), offline=True) as page:
        await expect(page.locator("h1")).to_have_text("6 tools in store")
        await expect(page.locator(".chart:has(circle)").last.locator("circle")).to_have_count(6)
        await expect(chart(page, "The graph").locator(".values b")).to_have_text(["6", "5"])
        await expect(page.locator("tbody tr").first).to_have_text("t0010word0 <b>thing0")


async def test_names_of_a_stranger_are_text_in_a_file(browser: Browser, tmp_path: Path) -> None:
    run = tmp_path / "run"
    names = {HOSTILE: 1.0, f"measured/{HOSTILE}": 2.0, "measured/__proto__": 4}
    run_folders.lines(run / "learner.jsonl", (run_folders.step(n, **names) for n in (1, 2)))
    for command in ("report", "compare"):
        async with opened(browser, written(tmp_path, command, run), offline=True) as page:
            odd = page.get_by_role("heading", name="<img src=x").first
            await expect(odd.locator(".odd").first).to_have_text("U+202E")
            assert await page.evaluate("window.ran") is None
            assert await page.locator("img").count() == 0
