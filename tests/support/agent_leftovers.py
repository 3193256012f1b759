"""Agents that leave processes behind in every way: `python -m tests.support.agent_leftovers
SANDBOX COUNT FOLDER` plays them and prints figures as JSON.

Each agent has an environment variable of its own, which all that it starts inherit. A watcher reads
the process table for it, inside of jails too, and notes how long each agent's processes live on.
A process of its own plays them, because it adopts and ends orphans as the agent host does.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from agents.host import HOLD_S
from agents.jail.jail import make_jail
from agents.kinds.kept import ProcessKind
from agents.kinds.kind import Assigned, Site
from agents.process.keepers import Keepers, adopt_orphans
from agents.work_folder import base_folder
from toolwright.recipe import Agent
from toolwright.types import Task

AT_ONCE = 12
LONGEST_S = 15.0
"""Longest wait for the last process, in seconds."""
LOOK_S = 0.25
"""Interval between two looks at the process table, in seconds."""
SEEN_S = 2 * LOOK_S
"""Time from an agent's start to its end, so that the watcher sees it, in seconds."""
MARK = "TOOLWRIGHT_LEFT"
LIVES = "exec sleep 600"

LEAVES = {
    "nothing": "",
    "child": f"({LIVES}) &",
    "session": f"setsid sh -c '{LIVES}' &",
    "daemon": f"(setsid sh -c '({LIVES}) &' &)",
    "deaf": f"(trap '' TERM HUP INT; {LIVES}) &",
    "deaf daemon": "(trap '' TERM HUP INT; setsid sh -c '(sleep 600; sleep 600) &' &)",
    "silent": f"(setsid sh -c '{LIVES}' >/dev/null 2>&1 <&- &)",
    "crowd": f"for one in 1 2 3 4 5; do setsid sh -c '{LIVES}' & done",
    "forker": "(trap '' TERM; while :; do sleep 0.2 & wait; done) &",
}
"""What an agent leaves, by name. Most hold its output open."""
ENDS = {
    "exits": "exit 0",
    "fails": "exit 3",
    "killed": "kill -9 $$",
    "waits": "sleep 600",
    "deaf": "trap '' TERM; sleep 600; sleep 600",
}
"""How an agent ends, by name."""
ENDED_BY_HOST = ("waits", "deaf")


class Watcher:
    """Looks for processes of agents until it is cancelled. Use `play` for each agent."""

    def __init__(self, run: str, site: Site, sandbox: str) -> None:
        self.ended: dict[str, float] = {}
        """Time of each agent's end, by mark."""
        self.seen = Counter[str]()
        """Most processes of an agent at one look."""
        self.longest_s = 0.0
        self.ways = Counter[tuple[str, str]]()
        self._run = run
        self._site = site
        self._sandbox: Any = sandbox
        self._jail = None if sandbox == "none" else make_jail(sandbox, "/bin/sh", ())

    async def watch(self) -> None:
        while True:
            for _ in range(round(HOLD_S / LOOK_S)):
                await asyncio.to_thread(self.look)
                await asyncio.sleep(LOOK_S)
            self._site.keepers.end_orphans()

    def look(self) -> int:
        """Number of processes."""
        began = time.monotonic()
        found = Counter(one for one in marks() if one.startswith(self._run))
        for mark, count in found.items():
            self.seen[mark] = max(self.seen[mark], count)
            self.longest_s = max(self.longest_s, began - self.ended.get(mark, began))
        return found.total()

    async def play(self, number: int) -> None:
        dice, mark = Random(number), f"{self._run}-{number}"
        leaves, ends = dice.choice(list(LEAVES)), dice.choice(list(ENDS))
        rules = Agent(
            kind="command", command=("sh",), sandbox=self._sandbox, environment={MARK: mark}
        )
        words = ("/bin/sh", "-c", f"{LEAVES[leaves]}\nsleep {SEEN_S}\n{ENDS[ends]}")
        kind = ProcessKind(rules, words, self._jail, self._site)
        task = Task(id=mark, prompt="p")
        assigned = Assigned(number=number, attempt=mark, task=task, key="tw-key")
        playing = asyncio.create_task(kind.play(assigned))
        if ends in ENDED_BY_HOST:
            await asyncio.wait({playing}, timeout=dice.uniform(0.0, 2.0))
            playing.cancel()
        await asyncio.wait({playing})
        self.ended[mark] = time.monotonic()
        self.ways[leaves, ends] += 1


def marks() -> Iterator[str]:
    """The mark of each process that has one."""
    start = f"{MARK}=".encode()
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                variables = (folder / "environ").read_bytes()
            except OSError:
                continue
            for one in variables.split(b"\0"):
                if one.startswith(start):
                    yield one.removeprefix(start).decode()


async def main(sandbox: str, count: int, folder: Path) -> dict[str, float]:
    adopt_orphans()
    run, room = f"{time.time_ns()}", asyncio.Semaphore(AT_ONCE)
    async with base_folder(folder, run, jails=sandbox != "none") as base:
        site = Site(base=base, ingress="http://127.0.0.1:9", keepers=Keepers())
        watcher = Watcher(run, site, sandbox)

        async def play(number: int) -> None:
            async with room:
                await watcher.play(number)

        began = time.monotonic()
        watching = asyncio.create_task(watcher.watch())
        async with asyncio.TaskGroup() as group:
            for number in range(count):
                group.create_task(play(number))
        seconds = time.monotonic() - began
        while (  # noqa: ASYNC110 - processes tell nobody
            left := watcher.look()
        ) and time.monotonic() < began + seconds + LONGEST_S:
            await asyncio.sleep(LOOK_S)
        watching.cancel()
        site.keepers.end_all_orphans()
    return {
        "agents": len(watcher.ended),
        "ways": len(watcher.ways),
        "seen": len(watcher.seen),
        "processes": watcher.seen.total(),
        "seconds": round(seconds, 1),
        "longest_s": round(watcher.longest_s, 2),
        "left": left,
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])))))
