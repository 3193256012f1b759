"""One Chromium and the Playwright driver that steers it: they begin, are watched and end together.

Invariants
- Pages run in Chromium's own sandbox, which `start` verifies; without it only if the operator set
  both options for it. Chromium never runs as root.
- It reaches the hosts of its allow-list and no other.
- Once `ended` is set, every context in it is gone.
- A browser whose shared processes outgrow their limit takes no more sessions; at twice the limit it
  ends, with the sessions that it has.
- `close` leaves no process and no profile. Nor does the death of this process: the driver notices
  that its pipe closed, ends the browser and removes the profile. Only a driver that is killed
  leaves folders `playwright*` in the temporary one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
from playwright.async_api import Browser, BrowserContext, CDPSession, Playwright, async_playwright
from playwright.async_api import Error as PlaywrightError

from toolsvc.sandbox.config import MIB
from toolsvc.tools.browser.allow import AllowList
from toolsvc.tools.browser.errors import BrowserLost, BrowserUnavailable
from toolsvc.tools.browser.processes import confined, own_memory
from toolwright.jail.view import Account
from toolwright.rpc.errors import first_line

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
START_SECONDS = 120.0
"""Longest start, in seconds: a start takes a second or two on a quiet machine, half a minute on a
busy one."""
_CLOSE_SECONDS = 8.0
_ANSWER_SECONDS = 30.0
"""Longest wait for an answer that takes milliseconds on a quiet machine, in seconds."""
_SETTLE_SECONDS = 5.0
_WATCH_SECONDS = 1.0
_LAUNCHER = Path(__file__).with_name("chromium.sh")
_SWITCHES = (
    "--disable-gpu",
    # What pages draw by these without a graphics card is kept by a process that all pages share,
    # without end.
    "--disable-3d-apis",
    # Packets over UDP would pass by the proxy, which is what keeps pages to the allow-list. The
    # second is the name that older Chromiums know.
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
)
_NOT_WANTED = ["--disable-popup-blocking"]
"""Switches of Playwright's that are left out: a page may open another only when it was clicked."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowserPlan:
    """Settings of every browser of a service."""

    program: str
    account: Account
    allow: AllowList
    sandboxed: bool
    page_bytes: int
    """Memory of one renderer; one that holds more is killed."""
    shared_bytes: int
    """Memory of all other processes of one browser, together, in bytes."""


def find_program(given: Path | None) -> str:
    """Chromium's path. Raises BrowserUnavailable if it is not installed."""
    names = PROGRAMS if given is None else (str(given),)
    for name in names:
        found = shutil.which(name)
        if found is not None:
            return found
    if given is not None:
        raise BrowserUnavailable(f"{given} cannot be executed: correct browser.program")
    raise BrowserUnavailable(
        "there is no Chromium on PATH: `apt-get install chromium` as root, or name one with "
        "--set browser.program=FILE"
    )


class Chromium:
    """Made by `start`. Not thread-safe: all calls from the loop that started it."""

    def __init__(self, plan: BrowserPlan) -> None:
        self._plan = plan
        self._playwright: Playwright | None = None
        self._browser: Browser | None = None
        self._devtools: CDPSession
        self._watch: asyncio.Task[None] | None = None
        self._refusing = socket.socket()
        self.ended = asyncio.Event()
        self.killed_pages = 0
        """Renderers that held too much memory."""
        self.overgrown = False
        """True if its shared processes hold too much memory: it takes no more sessions."""

    @classmethod
    async def start(cls, plan: BrowserPlan) -> Chromium:
        """Raises BrowserUnavailable if it does not come up, or its sandbox does not hold."""
        chromium = cls(plan)
        try:
            async with asyncio.timeout(START_SECONDS):
                await chromium._launch()
                await chromium._examine()
        except BaseException as error:
            await chromium.close()
            if isinstance(error, TimeoutError):
                raise BrowserUnavailable(
                    f"{plan.program} was not ready after {START_SECONDS:g} s"
                ) from None
            raise
        chromium._watch = asyncio.create_task(chromium._keep_watch())
        return chromium

    async def context(self, **options: Any) -> BrowserContext:
        """A new context, which shares nothing with the others. Raises BrowserLost if the browser
        has ended."""
        assert self._browser is not None  # `start` made it.
        try:
            return await self._browser.new_context(**options)
        except PlaywrightError as error:
            raise BrowserLost(first_line(error)) from error

    async def answers(self) -> bool:
        """Whether it still works. If not, it counts as ended."""
        if not self.ended.is_set():
            await self._renderers()
        return not self.ended.is_set()

    async def close(self) -> None:
        """Ends the browser and everything open in it. Never raises."""
        self.ended.set()
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        self._refusing.close()
        closings: list[Callable[[], Awaitable[None]]] = []
        if self._browser is not None:
            closings.append(self._browser.close)
        if self._playwright is not None:
            closings.append(self._playwright.stop)
        for close in closings:
            try:
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await close()
            except (PlaywrightError, TimeoutError) as error:
                log.warning("browser did not close", error=str(error)[:200])

    async def _launch(self) -> None:
        plan = self._plan
        account = plan.account
        # Bound and never listened to: every connection is refused, and no other process gets it.
        self._refusing.bind(("127.0.0.1", 0))
        refusing = f"127.0.0.1:{self._refusing.getsockname()[1]}"
        self._playwright = await async_playwright().start()
        try:
            self._browser = await self._playwright.chromium.launch(
                executable_path=_LAUNCHER,
                args=[*_SWITCHES, *plan.allow.switches(refusing)],
                ignore_default_args=_NOT_WANTED,
                chromium_sandbox=plan.sandboxed,
                env={
                    "PATH": "/usr/bin:/bin",
                    "LANG": "C.UTF-8",
                    "BROWSER_PROGRAM": plan.program,
                    "BROWSER_ACCOUNT": f"{account.uid}:{account.gid}" if account.other else "",
                },
                handle_sigint=False,
                handle_sigterm=False,
                handle_sighup=False,
                timeout=START_SECONDS * 1000,
            )
        except PlaywrightError as error:
            raise BrowserUnavailable(_why_not(plan, str(error))) from error
        self._browser.on("disconnected", lambda _: self.ended.set())
        self._devtools = await self._browser.new_browser_cdp_session()

    async def _examine(self) -> None:
        """Checks a renderer from outside. A renderer that has only just begun has no filter yet."""
        context = await self.context()
        await context.new_page()
        deadline = self._now() + _SETTLE_SECONDS
        while True:
            renderers = await self._renderers()
            faults = {fault for pid in renderers for fault in confined(pid)}
            settled = renderers and not (faults and self._plan.sandboxed)
            if settled or self._now() >= deadline:
                break
            await asyncio.sleep(_SETTLE_SECONDS / 50)
        await context.close()
        if not renderers:
            raise BrowserUnavailable(f"{self._plan.program} opened a page without a renderer")
        if self._plan.sandboxed and faults:
            raise BrowserUnavailable(_no_sandbox(", ".join(sorted(faults))))

    async def _keep_watch(self) -> None:
        """Kills renderers that hold too much, ends a browser that does, and notices a driver that
        died without a word."""
        while not self.ended.is_set():
            renderers, shared = await self._processes()
            for pid in renderers:
                held = own_memory(pid)
                if held > self._plan.page_bytes:
                    log.warning("page killed", held_mib=held // MIB)
                    self.killed_pages += 1
                    _kill(pid)
            held = sum(map(own_memory, shared))
            if held > self._plan.shared_bytes and not self.overgrown:
                self.overgrown = True
                log.warning("browser takes no more sessions", held_mib=held // MIB)
            if held > 2 * self._plan.shared_bytes:
                log.error("browser ended", held_mib=held // MIB)
                for pid in shared:
                    _kill(pid)
            await asyncio.sleep(_WATCH_SECONDS)

    async def _renderers(self) -> list[int]:
        return (await self._processes())[0]

    async def _processes(self) -> tuple[list[int], list[int]]:
        """Process ids of pages, and of all other processes; both empty if the browser does not
        answer, which then counts as ended."""
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                answer = await self._devtools.send("SystemInfo.getProcessInfo")
        except (PlaywrightError, TimeoutError):
            self.ended.set()
            return [], []
        found: tuple[list[int], list[int]] = ([], [])
        for one in answer["processInfo"]:
            found[one["type"] != "renderer"].append(one["id"])
        return found

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _why_not(plan: BrowserPlan, complaint: str) -> str:
    if "No usable sandbox" in complaint:
        return _no_sandbox("Chromium finds none")
    lines = [line for line in complaint.splitlines() if "[err]" in line and "dbus" not in line]
    said = lines[-1].partition("[err]")[2].strip() if lines else complaint.splitlines()[0]
    return f"{plan.program} did not start: {said}"


def _no_sandbox(why: str) -> str:
    return (
        f"Chromium's sandbox does not hold here ({why}): allow unprivileged user namespaces, or "
        "`apt-get install chromium-sandbox`; to run pages without a sandbox takes both --sandbox "
        "none and --allow-unsandboxed"
    )
