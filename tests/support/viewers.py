"""`toolwright view --web`, served, and pages of it in a real Chromium in which nothing may fail."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, Page, async_playwright, expect

from tests.support.waiting import PATIENCE
from toolsvc.tools.browser.chromium import find_program

expect.set_options(timeout=PATIENCE * 1000)


@contextmanager
def served(home: Path, token: str = "") -> Iterator[tuple[str, str]]:
    """(what the command says, its address). home: the folder of the runs, and of the indexes."""
    command = [sys.executable, "-m", "console.cli", "view", "--web", str(home)]
    process = subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "XDG_CACHE_HOME": str(home), "TOOLWRIGHT_TOKEN": token},
    )
    try:
        said = process.stdout.readline()
        found = re.search(r"(http://127\.0\.0\.1:\d+)/", said)
        assert found
        yield said, found[1]
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """For a module's tests."""
    async with async_playwright() as playwright:
        # Its own sandbox does not run as root; all that is opened here is ours.
        browser = await playwright.chromium.launch(
            executable_path=find_program(None), chromium_sandbox=False, timeout=PATIENCE * 1000
        )
        yield browser
        await browser.close()


def page_of(
    browser: Browser, address: str, place: str, *, width: int = 1400, **options: Any
) -> AbstractAsyncContextManager[Page]:
    """A page of a viewer, in which nothing may fail."""
    return opened(browser, f"{address}/?{place}", width=width, **options)


@asynccontextmanager
async def opened(
    browser: Browser, url: str, *, width: int = 1400, **options: Any
) -> AsyncIterator[Page]:
    """A page in which nothing may fail."""
    faults: list[str] = []
    context = await browser.new_context(viewport={"width": width, "height": 900}, **options)
    context.set_default_timeout(PATIENCE * 1000)
    page = await context.new_page()
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda line: faults.append(line.text) if line.type == "error" else None)
    await page.goto(url)
    try:
        yield page
        assert not faults
    finally:
        await context.close()
