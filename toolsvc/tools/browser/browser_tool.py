"""`browser`: pages of the web, for each session in a browser context of its own.

It owns the options and the text for the policy. A session takes its context at its first call. A
browser that crashes loses its sessions, and the next session gets a new one.

Invariant: at most `calls_at_once` calls run; others wait before their run limit begins. A page that
loads keeps a core busy: with many at once none would be ready in time.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import structlog
from pydantic import BaseModel, Field, field_validator

from toolsvc.errors import Reason, Refused, StartError, backend_down
from toolsvc.plugin.results import failure
from toolsvc.plugin.tool import (
    STRICT,
    Cancellation,
    InService,
    LiveState,
    OutOfProcess,
    Tool,
)
from toolsvc.sandbox.config import MIB, Isolation, SandboxConfig
from toolsvc.sandbox.errors import SandboxUnavailable
from toolsvc.sandbox.plan import find_account, is_sandboxed
from toolsvc.tools.browser.allow import AllowList
from toolsvc.tools.browser.arguments import BrowserArguments
from toolsvc.tools.browser.chromium import BrowserPlan, Chromium, find_program
from toolsvc.tools.browser.errors import BrowserLost, BrowserUnavailable, PageFailed
from toolsvc.tools.browser.fleet import Berth, BrowserFleet
from toolsvc.tools.browser.visit import Bounds, Visit
from toolsvc.tools.browser.words import describe
from toolsvc.types import Call, JsonCallFormat, Media, Result, SessionInfo
from toolwright.jail.view import Account
from toolwright.types import ToolErrorKind

_PATIENCE_SECONDS = 5.0
"""Longest wait for a context whose session was cancelled meanwhile."""

_ACCOUNTS = ("toolwright-browser", "news", "nobody")
"""Accounts for Chromium, if the service is root. With the sandbox's account both would share the
kernel's limits of an account. The second account owns nothing on most machines."""

_CALLS_PER_CORE = 4
"""Calls at once for each core: pages wait for their servers for a part of the time."""

log = structlog.get_logger(__name__)


class BrowserOptions(BaseModel):
    """Options of `browser`."""

    model_config = STRICT

    allow: tuple[str, ...] = Field(
        description='hosts that may be reached, such as ["example.org", "*.example.org"]'
    )
    program: Path | None = Field(default=None, description="Chromium, where it is not on PATH")
    sessions: int = Field(default=64, ge=1, description="in browsers at once; more wait")
    per_browser: int = Field(default=32, ge=1, description="sessions that share a browser process")
    calls_at_once: int = Field(
        default_factory=lambda: _CALLS_PER_CORE * (os.cpu_count() or 1),
        ge=1,
        description="calls that run; more wait. Default: 4 a core",
    )
    pages: int = Field(default=4, ge=1, description="windows of one session")
    page_mib: int = Field(default=512, ge=64, description="memory of one page's process")
    shared_mib: int = Field(
        default=1024, ge=128, description="memory of what all pages of a browser share"
    )
    user: str | None = Field(
        default=None, description="account that Chromium runs as when the service is root"
    )
    text_chars: int = Field(default=8000, ge=100, description="of a page, shown at once")
    navigation_seconds: float = Field(
        default=15,
        gt=0,
        description="for an address to answer, again for its page to load, and to be read",
    )
    width: int = Field(default=1280, ge=64, le=4096, description="of the window, in pixels")
    height: int = Field(default=720, ge=64, le=4096, description="of the window, in pixels")

    @field_validator("allow", mode="before")
    @classmethod
    def _one_or_several(cls, hosts: Any) -> Any:
        """A single host need not be written as a list."""
        return hosts.split(",") if isinstance(hosts, str) else hosts

    @field_validator("allow")
    @classmethod
    def _are_hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        AllowList.parse(hosts)
        return hosts


class _Session(LiveState):
    """A session's state: its place in a browser, once it has one, and why it is lost."""

    ready = False  # Each call takes its turn.

    def __init__(self, tool: BrowserTool) -> None:
        self._tool = tool
        self.berth: Berth | None = None
        self.visit: Visit | None = None
        self.failed: str | None = None

    @property
    def lost(self) -> str | None:
        if self.failed is None and self.berth is not None and self.berth.chromium.ended.is_set():
            self.failed = "its browser ended"
        return self.failed

    async def prepare(self) -> None:
        await self._tool.take_turn(self)


class BrowserTool(Tool):
    Config = BrowserOptions
    executor = OutOfProcess
    name = "browser"
    description = (
        "Drives a web browser. Every action but a screenshot answers with the page's text, in "
        "which elements are marked [ref=e12]."
    )
    usage = (
        '<tool_call>{"name": "browser", "arguments": {"action": "navigate", "url": "http://..."}}'
        "</tool_call>\n"
        "Opens a page and shows its text, in which elements are marked [ref=e12]. Other actions: "
        "click (ref), type (ref, text; submit: true presses Enter), scroll (direction: up or down, "
        "or ref), back, read (start: from that character on), screenshot."
    )
    arguments = BrowserArguments
    format = JsonCallFormat()
    stateful = True
    media = True
    keep = "head"
    run_limit = 60.0

    def __init__(self, config: BrowserOptions, sandbox: SandboxConfig) -> None:
        super().__init__(config)
        self._sandbox = sandbox
        self._allow = AllowList.parse(config.allow)
        self._bounds = Bounds(
            pages=config.pages,
            navigation=config.navigation_seconds,
            width=config.width,
            height=config.height,
        )
        self._plan: BrowserPlan
        self._fleet = BrowserFleet(
            self._start_browser, sessions=config.sessions, per_browser=config.per_browser
        )
        self._running = asyncio.Semaphore(config.calls_at_once)

    async def start(self) -> None:
        try:
            self._plan = BrowserPlan(
                program=find_program(self.config.program),
                account=self._account(),
                allow=self._allow,
                sandboxed=is_sandboxed(self._sandbox),
                page_bytes=self.config.page_mib * MIB,
                shared_bytes=self.config.shared_mib * MIB,
            )
            await self._fleet.start()
        except (BrowserUnavailable, SandboxUnavailable) as error:
            raise StartError(str(error)) from error
        self.isolation = str(Isolation.FULL if self._plan.sandboxed else Isolation.NONE)
        log.info("browser ready", program=self._plan.program, isolation=self.isolation)
        if not self._plan.sandboxed:
            log.warning("pages run without Chromium's sandbox", account=self._plan.account.uid)

    async def stop(self) -> None:
        await self._fleet.stop()

    def figures(self) -> Mapping[str, float]:
        return self._fleet.figures()

    async def open(self, session: SessionInfo) -> _Session:
        return _Session(self)

    async def close(self, state: _Session) -> None:
        """Gives the session's context and its place in the browser back, if it has one."""
        if state.berth is None:
            return
        try:
            if state.visit is not None and not await state.visit.end():
                state.berth.retire()
        finally:
            await self._fleet.give_back(state.berth)

    async def take_turn(self, state: _Session) -> None:
        """Gets a context for a session that has none, then a permit that `run` gives back."""
        if state.visit is None:
            await self._settle_in(state)
        await self._running.acquire()

    async def run(self, state: _Session, call: Call, cancellation: Cancellation) -> Result:
        try:
            result = await InService(self).run(state, call, cancellation)
        finally:
            self._running.release()
        if state.lost is not None:
            raise Refused(Reason.SESSION_LOST, f"the session was lost: {state.lost}")
        return result

    async def call(self, state: _Session, call: Call) -> Result:
        visit = state.visit
        assert visit is not None  # `prepare` made it.
        arguments = BrowserArguments.model_validate(dict(call.arguments))
        try:
            view = await visit.act(arguments)
        except BrowserLost as error:
            state.failed = str(error)
            return Result()
        except PageFailed as error:
            return failure(
                ToolErrorKind.CRASHED if error.crashed else ToolErrorKind.EXCEPTION, str(error)
            )
        except asyncio.CancelledError:
            # In a task of its own: before Python 3.11.3 no time limit passes in a cancelled one.
            await asyncio.create_task(visit.halt())
            raise
        text, cut = describe(view, arguments.start, self.config.text_chars)
        images = [] if view.image is None else [Media(media_type="image/png", data=view.image)]
        return Result.of(text, *images, truncated=cut)

    def _account(self) -> Account:
        """The account of Chromium. Raises SandboxUnavailable if it does not exist."""
        if self.config.user is None and os.geteuid() != 0:
            return find_account(self._sandbox)
        return find_account(replace(self._sandbox, user=self.config.user), _ACCOUNTS)

    async def _settle_in(self, state: _Session) -> None:
        try:
            berth = await self._fleet.take()
        except BrowserUnavailable as error:
            raise backend_down(str(error)) from error
        try:
            state.visit = await self._begin(berth)
        except BrowserLost as error:
            await self._fleet.give_back(berth)
            raise backend_down(f"no browser: {error}") from error
        except BaseException:
            await self._fleet.give_back(berth)
            raise
        state.berth = berth

    async def _begin(self, berth: Berth) -> Visit:
        """A new context. A cancellation waits for it and closes it."""
        beginning = asyncio.create_task(Visit.begin(berth.chromium, self._allow, self._bounds))
        try:
            return await asyncio.shield(beginning)
        except asyncio.CancelledError:
            await asyncio.wait((beginning,), timeout=_PATIENCE_SECONDS)
            visit = None if beginning.cancel() or beginning.exception() else beginning.result()
            if visit is None or not await visit.end():
                berth.retire()
            raise

    async def _start_browser(self) -> Chromium:
        return await Chromium.start(self._plan)
