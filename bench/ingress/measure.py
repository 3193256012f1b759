"""One run: sampler, engine and ingress in processes of their own, agents here, and the figures.

A call's added latency is the client's time less the sampler's own, from the read of the request to
the write of its end.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.engine.lag import LagReader, lag_ms
from bench.ingress.agents import AgentCrowd, MadeCall
from bench.ingress.policy import END, words, write_policy
from bench.ingress.sampler import Stamp
from bench.ingress.traffic import ROOM, Traffic
from bench.measuring.report import Report
from bench.measuring.servers import listening, module, program, serving
from bench.measuring.spread import Spread
from bench.measuring.usage import cpu_seconds
from console.machine.memory import resident_peak
from console.machine.processes import Processes, Running
from console.machine.ready import free_ports

PACKAGES = ("toolwright", "aiohttp", "grpcio", "uvloop", "tokenizers", "protobuf")
IDLE_S = 4.0
"""Time for which the processes are watched before the first call, in seconds."""
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class IngressRow:
    """One traffic. figures: the row of the JSON."""

    figures: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        return self.figures


async def measure(
    traffics: Sequence[Traffic], *, threads: int, seed: int, say: Say
) -> Report[IngressRow]:
    """Measures one traffic after another. Raises ProcessFailed or NotReady if a process fails."""
    rows = []
    for traffic in traffics:
        with tempfile.TemporaryDirectory(prefix="bench-ingress-") as name:
            folder = Path(name)
            async with Processes(folder / "logs") as processes:
                rows.append(await _row(traffic, threads, seed, folder, processes, say))
    return Report.of(rows, PACKAGES)


async def _row(
    traffic: Traffic, threads: int, seed: int, folder: Path, processes: Processes, say: Say
) -> IngressRow:
    context = traffic.longest + ROOM
    sampler, sampler_url = await _start_sampler(traffic, context, folder, processes)
    engine_port, metrics_port, http_port = free_ports(3)
    recipe = _recipe(traffic, context, folder, sampler_url, engine_port, metrics_port)
    file = folder / "recipe.toml"
    file.write_text(recipe, encoding="utf-8")
    engine = await processes.start(program("engine", "engine", "serve", str(file)))
    await listening(processes, engine, [engine_port])
    ingress = await processes.start(
        program(
            "ingress", "ingress", "serve", str(file), "--set", f"ingress.threads={threads}",
            "--listen", f"127.0.0.1:{http_port}",
        )
    )  # fmt: skip
    await listening(processes, ingress, [http_port])
    crowd = AgentCrowd(
        traffic=traffic,
        engine=f"127.0.0.1:{engine_port}",
        url=f"http://127.0.0.1:{http_port}",
        seed=seed,
    )
    used = _Usage({"engine": engine, "ingress": ingress, "sampler": sampler})
    lag = LagReader(metrics_port)
    idle = await used.idle()
    load_before, began = os.getloadavg()[0], time.monotonic()
    say(f"{traffic.name}: {traffic.agents} agents, their first calls")

    async def steady() -> dict[str, Any]:
        await crowd.all_begun.wait()
        before, first, lag.ramped = used.cpu(), len(crowd.calls), await lag.read()
        began_first = time.monotonic() - began
        say(f"{traffic.name}: later calls, after {began_first:.0f} s")
        return {"first_s": began_first, "before": before, "first": first, "at": time.monotonic()}

    async def play() -> dict[str, Any]:
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(steady())
            watching.add_done_callback(lambda _: crowd.go_on.set())
            group.create_task(crowd.run())
        return watching.result()

    begun = await processes.while_alive(play())
    ended, after, last = time.monotonic(), used.cpu(), await lag.read()
    peaks = {name: resident_peak(one.pid) / 2**20 for name, one in used.processes.items()}
    for one in (ingress, engine, sampler):
        await processes.stop(one)
    later = len(crowd.calls) - begun["first"]
    later_s = ended - begun["at"]
    cpu = {name: after[name] - begun["before"][name] - idle[name] * later_s for name in after}
    return IngressRow(
        figures={
            "traffic": traffic.name,
            "agents": traffic.agents,
            "context": traffic.context,
            "rate": traffic.rate,
            "threads": threads,
            "seed": seed,
            "seconds": ended - began,
            "first_calls_s": begun["first_s"],
            "calls": len(crowd.calls),
            "failed": len(crowd.failed),
            "failures": sorted(set(crowd.failed))[:5],
            "cpu_ms_per_call": {name: 1e3 * spent / later for name, spent in cpu.items()}
            if later
            else None,
            "idle_cpu_ms_per_s": {name: 1e3 * share for name, share in idle.items()},
            "lag_ms": lag_ms(lag.ramped, last) if later else None,
            "peak_mb": peaks,
            "load_average": [load_before, os.getloadavg()[0]],
            **added(crowd.calls, _stamps(folder)),
        }
    )


class _Usage:
    """CPU seconds of processes by name."""

    def __init__(self, processes: dict[str, Running]) -> None:
        self.processes = processes

    def cpu(self) -> dict[str, float]:
        own = {name: cpu_seconds([one.pid]) for name, one in self.processes.items()}
        return {**own, "agents": time.process_time()}

    async def idle(self) -> dict[str, float]:
        """CPU seconds a second without any call."""
        before, began = self.cpu(), time.monotonic()
        await asyncio.sleep(IDLE_S)
        seconds = time.monotonic() - began
        return {name: (now - before[name]) / seconds for name, now in self.cpu().items()}


async def _start_sampler(
    traffic: Traffic, context: int, folder: Path, processes: Processes
) -> tuple[Running, str]:
    tokenizer = write_policy(folder / "policy")
    some = tokenizer.encode(" " + words(512, "sampler")).ids
    settings = {
        "tokens_per_s": traffic.tokens_per_s,
        "context": context + ROOM,
        "vocab_size": tokenizer.get_vocab_size(),
        "end_id": tokenizer.token_to_id(END),
        "word_ids": sorted(set(some)),
    }
    (folder / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
    files = str(folder / "settings.json"), str(folder / "stamps.json")
    return await serving(processes, module("sampler", "bench.ingress.sampler", *files))


def _recipe(
    traffic: Traffic, context: int, folder: Path, sampler: str, engine: int, metrics: int
) -> str:
    return f"""
[run]
name = "bench"
folder = "{folder}/run"
steps = 1
groups_per_step = {traffic.agents}
group_size = 1
engine = "127.0.0.1:{engine}"

[policy]
model = "{folder}/policy"

[task]
source = "bench.engine.processes.questions:questions"
reward = "bench.engine.processes.questions:reward"
[task.agent]
[task.limits]
model = {context}
action = {4 * traffic.reply}
seconds = 36000.0

[sampler]
endpoints = ["http://{sampler}"]

[engine]
max_concurrent = {traffic.agents}
metrics_port = {metrics}

[ingress]
"""


def _stamps(folder: Path) -> list[Stamp]:
    rows = json.loads((folder / "stamps.json").read_text(encoding="utf-8"))
    return [(attempt, read, written) for attempt, read, written in rows]


def added(calls: Iterable[MadeCall], stamps: Iterable[Stamp]) -> dict[str, Any]:
    """Added latency in ms: until the last piece of text, and until the end, which the disk
    precedes. `first_ms`: until the end, of calls whose prompts were encoded as a whole."""
    of_attempt = defaultdict[str, list[tuple[int, int]]](list)
    for attempt, read_ns, written_ns in stamps:
        of_attempt[attempt].append((read_ns, written_ns))
    text, end, first = list[float](), list[float](), list[float]()
    for one in calls:
        read_ns, written_ns = sorted(of_attempt[one.attempt])[one.number]
        sampler_ns = written_ns - read_ns
        durable = (one.ended_ns - one.asked_ns - sampler_ns) / 1e6
        if one.fresh:
            first.append(durable)
        else:
            text.append((one.said_ns - one.asked_ns - sampler_ns) / 1e6)
            end.append(durable)
    return {
        "text_ms": asdict(Spread.of(text)) if text else None,
        "durable_ms": asdict(Spread.of(end)) if end else None,
        "first_ms": asdict(Spread.of(first)),
    }
