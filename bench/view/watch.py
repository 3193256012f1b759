"""Watches a growing run in a real Chromium, to find memory that grows without need.

Two pages are open, the table and the curves. New trajectories come as from an engine, and both
pages show them.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import CDPSession, Page, sync_playwright

from bench.measuring.usage import resident
from bench.view.made_run import GROUP, GROUPS_A_STEP, MadeRun
from bench.view.served import RUN, Served, served
from toolsvc.tools.browser.chromium import find_program

RATE = 20.0
"""Trajectories a second."""
EVERY_S = 30.0
PLACES = ("", "&page=curves")
SHOW = "() => document.querySelector('button.fresh:not([hidden])')?.click()"


def watch(home: Path, seconds: float, take: Callable[[dict[str, Any]], None]) -> None:
    """Makes the run below `home` and passes a sample to `take` each EVERY_S: seconds, rows, MiB of
    the server, and for each page its nodes and the MiB of its heap after a collection."""
    made = MadeRun(home / RUN)
    made.grow(GROUPS_A_STEP)
    with _growing(home / RUN, made), served(home) as server, sync_playwright() as playwright:
        # Chromium's own sandbox does not run as root. Both pages are ours.
        browser = playwright.chromium.launch(
            executable_path=find_program(None), chromium_sandbox=False
        )
        pages = [browser.new_page() for _ in PLACES]
        for page, place in zip(pages, PLACES, strict=True):
            page.goto(f"{server.address}?run={RUN}{place}")
        tools = [page.context.new_cdp_session(page) for page in pages]
        began = time.monotonic()
        while (passed := time.monotonic() - began) < seconds:
            take(_sample(passed, server, tools))
            _show_new(pages, min(EVERY_S, seconds))
        take(_sample(passed, server, tools))  # the last one
        browser.close()
    made.close()


def _show_new(pages: list[Page], seconds: float) -> None:
    """Shows new trajectories each second, as a user does."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for page in pages:
            page.evaluate(SHOW)
            page.wait_for_timeout(1000)


def _sample(passed: float, server: Served, tools: list[CDPSession]) -> dict[str, Any]:
    heaps = [_heap(one) for one in tools]
    (state,) = server.get("runs")["runs"]
    return {
        "seconds": round(passed),
        "rows": state["rows"],
        "server_mib": round(resident([server.pid]) / 2**20, 1),
        "heaps_mib": [round(used / 2**20, 2) for used, _ in heaps],
        "nodes": [nodes for _, nodes in heaps],
    }


def _heap(tools: CDPSession) -> tuple[int, int]:
    """(bytes in use, nodes) after a collection."""
    tools.send("HeapProfiler.collectGarbage")
    used = tools.send("Runtime.getHeapUsage")["usedSize"]
    return int(used), int(tools.send("Memory.getDOMCounters")["nodes"])


@contextmanager
def _growing(run: Path, made: MadeRun) -> Iterator[None]:
    """Adds a group at a time, and a line of the learner with every step."""
    over = threading.Event()

    def grow() -> None:
        due = time.monotonic()
        while not over.wait(max(due - time.monotonic(), 0.0)):
            made.grow(1)
            step, rest = divmod(made.groups, GROUPS_A_STEP)
            if not rest:
                with (run / "learner.jsonl").open("a", encoding="utf-8") as file:
                    file.write(json.dumps({"step": step, "reward": 0.5, "step_s": 6.4}) + "\n")
            due += GROUP / RATE

    thread = threading.Thread(target=grow, name="growing")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
