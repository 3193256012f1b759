"""Actions on a page. Each returns a note on facts that the page's text does not show, or "".

An action raises PageFailed if it cannot be done, and Playwright's errors if the page or its browser
failed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable
from typing import Literal

from playwright.async_api import Error as PlaywrightError
from playwright.async_api import Locator, Page, Response
from playwright.async_api import TimeoutError as PlaywrightTimeout

from toolsvc.tools.browser.allow import AllowList
from toolsvc.tools.browser.errors import PageFailed
from toolsvc.tools.browser.words import LONGEST_URL, short, why_not_loaded

_ERROR_PAGE_MILLISECONDS = 2000
_FRAMES = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
_POSITION = (
    "[scrollY, scrollY + innerHeight, document.documentElement.scrollHeight].map(Math.round)"
)


async def navigate(page: Page, url: str, allow: AllowList, seconds: float) -> str:
    """Opens an address and waits for its answer, `seconds` at most."""
    shown = short(url, LONGEST_URL)
    if not allow.permits(url):
        raise PageFailed(
            f"{shown} cannot be opened: only http and https addresses of these hosts can: {allow}"
        )
    going = page.goto(url, wait_until="commit", timeout=seconds * 1000)
    return await _load(page, going, shown, allow, seconds)


async def click(page: Page, ref: str) -> str:
    await (await _element(page, ref)).click()
    return ""


async def enter(page: Page, ref: str, text: str, *, submit: bool) -> str:
    """Replaces what is in a field, or chooses from a list."""
    element = await _element(page, ref)
    if await element.evaluate("element => element.tagName") == "SELECT":
        await element.select_option(label=text)
    else:
        await element.fill(text)
    if submit:
        await element.press("Enter")
    return ""


async def scroll(page: Page, ref: str | None, direction: Literal["up", "down"] | None) -> str:
    """Scrolls to an element, or by one window."""
    if ref is not None:
        await (await _element(page, ref)).scroll_into_view_if_needed()
    else:
        width, height = await page.evaluate("[innerWidth, innerHeight]")
        # In the middle of the window, where what scrolls inside a page most often is.
        await page.mouse.move(width / 2, height / 2)
        await page.mouse.wheel(0, height if direction == "down" else -height)
    await page.evaluate(_FRAMES)
    top, bottom, whole = await page.evaluate(_POSITION)
    return f"the window shows {top} to {bottom} of {whole} pixels"


async def back(page: Page, others: int, allow: AllowList, seconds: float) -> str:
    """Goes to the previous page; from the first page of a window, by closing that window."""
    devtools = await page.context.new_cdp_session(page)
    history = await devtools.send("Page.getNavigationHistory")
    await devtools.detach()
    if history["currentIndex"] > 0:
        going = page.go_back(wait_until="commit", timeout=seconds * 1000)
        return await _load(page, going, "the page before", allow, seconds)
    if not others:
        raise PageFailed("there is no page to go back to")
    await page.close()
    return ""


async def _load(
    page: Page, going: Awaitable[Response | None], what: str, allow: AllowList, seconds: float
) -> str:
    """Waits for a navigation and returns a note on its outcome."""
    try:
        response = await going
    except PlaywrightTimeout:
        raise PageFailed(f"{what} did not answer within {seconds:g} s") from None
    except PlaywrightError as error:
        if "net::" not in str(error) and "Download" not in str(error):
            raise
        # The browser's own page about it is still to come, and would interrupt what comes next.
        with contextlib.suppress(PlaywrightTimeout):
            await page.wait_for_url("chrome-error://**", timeout=_ERROR_PAGE_MILLISECONDS)
        reason = why_not_loaded(str(error), str(allow))
        raise PageFailed(f"{what} could not be loaded: {reason}") from error
    if response is None or response.status < 400:
        return ""
    return f"HTTP status {response.status}"


async def _element(page: Page, ref: str) -> Locator:
    element = page.locator(f"aria-ref={ref}")
    if await element.count() == 0:
        raise PageFailed(
            f"there is no element {ref} in the page as it was last read: read it again"
        )
    return element
