"""One session in its browser: an isolated context, and the pages in it.

Invariants
- The newest page is the one that is acted on; going back from its beginning closes it.
- The context shares cookies, storage and cache with no other; downloads, permissions and service
  workers are off; dialogs are answered with OK, so that no page waits for an answer.
- If an action is stopped, `halt` ends everything that it left running, and the page if necessary.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Self

from playwright.async_api import BrowserContext, Dialog, Page, Request
from playwright.async_api import Error as PlaywrightError
from playwright.async_api import TimeoutError as PlaywrightTimeout

from toolsvc.tools.browser import actions
from toolsvc.tools.browser.allow import AllowList
from toolsvc.tools.browser.arguments import BrowserArguments
from toolsvc.tools.browser.chromium import Chromium
from toolsvc.tools.browser.errors import BrowserLost, PageFailed
from toolsvc.tools.browser.words import PageView, short, why_not_done, why_not_loaded
from toolwright.rpc.errors import first_line

ELEMENT_SECONDS = 5.0
"""Longest wait for an element to be visible, enabled and not covered, in seconds."""
_TEXT_SECONDS = 2.0
"""First limit for the page's text, in seconds: Playwright waits that long for a frame without
text."""
QUIET_SECONDS = 1.0
"""Longest wait for the requests that an action caused, in seconds; some requests never end."""
_HALT_SECONDS = 3.0
_CLOSE_SECONDS = 5.0
_MOST_NOTES = 5
_LONGEST_NOTE = 200
_CRASHED = "the page crashed, or held too much memory, and was closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Bounds of one session, in seconds and CSS pixels."""

    pages: int
    navigation: float
    """Longest wait for an address to answer, again for its page to load, and again for reading
    it."""
    width: int
    height: int


class Visit:
    """Made by `begin`. Its owner must `end` it."""

    def __init__(
        self, chromium: Chromium, context: BrowserContext, allow: AllowList, bounds: Bounds
    ) -> None:
        self._chromium = chromium
        self._context = context
        self._allow = allow
        self._bounds = bounds
        self._notes: list[str] = []
        self._crashed: set[Page] = set()
        self._given_up: set[Page] = set()
        """Pages that do not answer, and may take their time to close."""
        self._shown: Page | None = None
        self._in_flight: set[Request] = set()
        self._quiet = asyncio.Event()
        context.set_default_timeout(ELEMENT_SECONDS * 1000)
        context.on("page", self._on_page)
        context.on("dialog", self._on_dialog)
        context.on("request", self._on_request)
        context.on("requestfinished", self._on_request_end)
        context.on("requestfailed", self._on_request_failed)

    @classmethod
    async def begin(cls, chromium: Chromium, allow: AllowList, bounds: Bounds) -> Self:
        """Makes the context. Raises BrowserLost if the browser has ended."""
        context = await chromium.context(
            accept_downloads=False,
            service_workers="block",
            viewport={"width": bounds.width, "height": bounds.height},
        )
        try:
            await context.grant_permissions([])  # These and no others.
        except PlaywrightError as error:
            raise BrowserLost(first_line(error)) from error
        return cls(chromium, context, allow, bounds)

    async def end(self) -> bool:
        """Closes the context and every page in it. False if that cannot be done."""
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._context.close()
        except (PlaywrightError, TimeoutError):
            return False
        return True

    async def act(self, arguments: BrowserArguments) -> PageView:
        """Does what is asked and looks at the page. Raises PageFailed if it cannot be done,
        BrowserLost if the browser ended."""
        self._in_flight.clear()
        self._quiet.set()
        try:
            await self._do(arguments)
            try:
                return await self._look(arguments, _TEXT_SECONDS)
            except PlaywrightError:
                # The page went, by a navigation that the action set off; or it is a large one, or
                # the machine is busy: a page that has loaded is worth as long a wait as its load.
                return await self._look(arguments, self._bounds.navigation)
        except PlaywrightError as error:
            raise await self._explained(error) from error
        except PageFailed:
            self._notes.clear()
            raise

    async def halt(self) -> None:
        """Stops what the page is doing. One that does not answer is closed."""
        try:
            page = await self._page()
        except PlaywrightError:
            return  # It went by itself.
        try:
            async with asyncio.timeout(_HALT_SECONDS):
                devtools = await self._context.new_cdp_session(page)
                await devtools.send("Page.stopLoading")
                await devtools.detach()
                # Whether it answers; before, this would wait for what loads.
                await page.evaluate("0")
        except (PlaywrightError, TimeoutError):
            self._note("the page did not stop, and was closed")
            self._given_up.add(page)
            with contextlib.suppress(PlaywrightError, TimeoutError):
                async with asyncio.timeout(_HALT_SECONDS):
                    await page.close()

    async def _do(self, arguments: BrowserArguments) -> None:
        page, seconds, ref = await self._page(), self._bounds.navigation, arguments.ref or ""
        match arguments.action:
            case "read" | "screenshot":
                return
            case "navigate":
                note = await actions.navigate(page, arguments.url or "", self._allow, seconds)
            case "click":
                note = await actions.click(page, ref)
            case "type":
                text = arguments.text or ""
                note = await actions.enter(page, ref, text, submit=arguments.submit)
            case "scroll":
                note = await actions.scroll(page, arguments.ref, arguments.direction)
            case "back":
                note = await actions.back(page, len(self._context.pages) - 1, self._allow, seconds)
        if note:
            self._note(note)
        await self._settle(await self._page())

    async def _settle(self, page: Page) -> None:
        """Waits until the page has loaded, and what the action asked of the network is there."""
        try:
            await page.wait_for_load_state("load", timeout=self._bounds.navigation * 1000)
        except PlaywrightTimeout:
            self._note(f"still loading after {self._bounds.navigation:g} s")
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(QUIET_SECONDS):
                await self._quiet.wait()

    async def _look(self, arguments: BrowserArguments, seconds: float) -> PageView:
        page = await self._page()
        if self._shown not in (None, page):
            self._note("this is another window than before")
        self._shown = page
        title, text, image = await page.title(), "", None
        if arguments.action == "screenshot":
            image = await page.screenshot(scale="css")
        else:
            text = await page.aria_snapshot(mode="ai", timeout=seconds * 1000)
        notes, self._notes = tuple(self._notes), []
        return PageView(title=title, url=page.url, text=text, notes=notes, image=image)

    async def _page(self) -> Page:
        """The newest page, or a new blank one."""
        while self._crashed:
            self._note(_CRASHED)
            await self._crashed.pop().close()
        pages = [page for page in self._context.pages if page not in self._given_up]
        return pages[-1] if pages else await self._context.new_page()

    async def _explained(self, error: PlaywrightError) -> PageFailed | BrowserLost:
        if not await self._chromium.answers():
            return BrowserLost("the browser ended")
        if not self._crashed:
            return PageFailed(why_not_done(str(error)))
        with contextlib.suppress(PlaywrightError):
            await self._page()
        self._notes.clear()
        return PageFailed(_CRASHED, crashed=True)

    def _note(self, text: str) -> None:
        if len(self._notes) < _MOST_NOTES:
            self._notes.append(text)

    async def _on_page(self, page: Page) -> None:
        page.on("crash", self._on_crash)
        if len(self._context.pages) > self._bounds.pages:
            self._note(f"{self._bounds.pages} windows are open already: another one was closed")
            with contextlib.suppress(PlaywrightError):
                await page.close()

    def _on_crash(self, page: Page) -> None:
        self._crashed.add(page)

    async def _on_dialog(self, dialog: Dialog) -> None:
        self._note(f'{dialog.type} "{short(dialog.message, _LONGEST_NOTE)}" was answered with OK')
        with contextlib.suppress(PlaywrightError):
            await dialog.accept(dialog.default_value)

    def _on_request(self, request: Request) -> None:
        self._in_flight.add(request)
        self._quiet.clear()

    def _on_request_end(self, request: Request) -> None:
        self._in_flight.discard(request)
        if not self._in_flight:
            self._quiet.set()

    def _on_request_failed(self, request: Request) -> None:
        self._on_request_end(request)
        if request.is_navigation_request() and request.failure:
            reason = why_not_loaded(request.failure, str(self._allow))
            self._note(f"{short(request.url, _LONGEST_NOTE)} was not loaded: {reason}")
