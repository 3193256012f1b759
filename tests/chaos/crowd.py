"""A crowd of trajectories in real processes: sampler, tool service, engine, and a consumer.

Whoever kills them is the test; here they are started, looked at, and brought to the end.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.dispatch.workload import write_policy
from bench.makespan.plan import STOP
from engine.core.trajectory.events import Ended, Opened
from engine.serving.journal.logs import LogState
from engine.serving.journal.reader import JournalReader
from tests.chaos.conftest import ROOT, Run, kill, listens
from tests.chaos.consumer import Consumer
from tests.chaos.workload import VARIABLE, Workload
from tests.support.net import free_port
from tests.support.recipes import merged, to_toml

PLAY = """
from tests.chaos.workload import Count, reply


class Sleep(Count):
    pass
"""

_SAMPLED = re.compile(r"^sglang:generation_tokens_total\S* (\S+)$", re.MULTILINE)


@dataclass(slots=True)
class Found:
    """What a crash left in the journal, by trajectory: attempts that ended, and those in flight."""

    ended: dict[str, str] = field(default_factory=dict)
    in_flight: dict[str, str] = field(default_factory=dict)


class Crowd:
    """`groups` of `size` trajectories around one run folder. Leave it with `close`."""

    def __init__(
        self,
        folder: Path,
        workload: Workload,
        *,
        groups: int,
        size: int,
        places: int,
        rate: float,
        changes: Mapping[str, Any] | None = None,
        tool_options: tuple[str, ...] = (),
    ) -> None:
        """rate: tokens a second of one stream. changes: of the recipe's tables."""
        self.groups, self.size = groups, size
        self.effects_file = folder / "effects"
        self.effects_file.touch()
        self.workload = Workload(
            effects=str(self.effects_file),
            calls=workload.calls,
            tokens=workload.tokens,
            call_s=workload.call_s,
            stateful=workload.stateful,
        )
        self._rate = rate
        self._tool_options = tool_options
        self._sampler_port, self._tools_port, self._engine_port = (
            free_port(), free_port(), free_port(),
        )  # fmt: skip
        path = os.pathsep.join(
            part for part in (str(ROOT), os.environ.get("PYTHONPATH", "")) if part
        )
        self.run = Run(
            folder=folder,
            recipe=folder / "recipe.toml",
            environment={VARIABLE: self.workload.to_json(), "PYTHONPATH": path},
        )
        write_policy(folder / "policy", STOP)
        (folder / "play.py").write_text(PLAY, encoding="utf-8")
        self.run.recipe.write_text(
            to_toml(merged(self._tables(places), changes or {})), encoding="utf-8"
        )
        self.consumer = Consumer(f"127.0.0.1:{self._engine_port}", groups)
        self._began = time.monotonic()
        self._sampled_before = 0
        self.kills = 0
        self.found: list[Found] = []
        """What each crash of the engine left."""
        self.engine: subprocess.Popen[bytes] | None = None
        self.sampler: subprocess.Popen[bytes] | None = None
        self.tools: subprocess.Popen[bytes] | None = None

    def _tables(self, places: int) -> dict[str, Any]:
        workload = self.workload
        return {
            "run": {
                "name": "crowd",
                "folder": "run",
                "steps": 1,
                "groups_per_step": self.groups,
                "group_size": self.size,
                "engine": f"127.0.0.1:{self._engine_port}",
            },
            "policy": {"model": "policy"},
            "task": {
                "source": "tests.chaos.workload:questions",
                "reward": "tests.chaos.workload:reward",
                "protocol_options": {"observation": "[{text}]"},
                "limits": {
                    "turns": workload.calls[1],
                    "action": 2 * workload.tokens[1],
                    "response": 16_384,
                },
            },
            "sampler": {"endpoints": [f"http://127.0.0.1:{self._sampler_port}"]},
            "tools": {"sleep": {"service": f"127.0.0.1:{self._tools_port}", "run_limit_s": 30.0}},
            "engine": {"max_concurrent": places, "history": "all", "drain_s": 0.5},
        }

    @property
    def run_folder(self) -> Path:
        return self.run.folder / "run"

    # ---- processes ----

    def start_sampler(self) -> None:
        self.sampler = self.run.start(
            "bench", "scripted-sampler", "--port", str(self._sampler_port),
            "--script", f"{self.run.folder / 'play.py'}:reply",
            "--tokens-per-second", str(self._rate), "--tokens-per-chunk", "4",
        )  # fmt: skip
        self._until_listens(self.sampler, self._sampler_port)

    def start_tools(self, *, wait: bool = True) -> None:
        self.tools = self.run.start(
            "toolsvc", "serve", str(self.run.folder / "play.py"),
            "--listen", f"127.0.0.1:{self._tools_port}", *self._tool_options,
        )  # fmt: skip
        if wait:
            self._until_listens(self.tools, self._tools_port)

    def start_engine(self, *, wait: bool = True) -> None:
        self.engine = self.run.engine()
        if wait:
            self._until_listens(self.engine, self._engine_port)

    def _until_listens(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.run.until(lambda: listens(port) or process.poll() is not None, f"listener on {port}")
        assert process.poll() is None, self.run.logs()

    def start(self) -> None:
        self.start_sampler()
        self.start_tools()
        self.start_engine()
        self.consumer.start()

    def kill_engine(self) -> Found:
        """Returns what it left."""
        assert self.engine is not None
        assert self.engine.poll() is None, f"it ended by itself\n{self.run.logs()}"
        kill(self.engine)
        return self._note_crash()

    def stop_engine(self) -> Found:
        """SIGTERM, as a supervisor sends it; returns what the engine left."""
        assert self.engine is not None
        self.engine.send_signal(signal.SIGTERM)
        self.run.ended(self.engine)
        return self._note_crash()

    def _note_crash(self) -> Found:
        self.kills += 1
        self.consumer.from_the_start()
        self.found.append(self.left())
        return self.found[-1]

    def kill_tools(self) -> None:
        assert self.tools is not None
        kill(self.tools)

    def kill_sampler(self) -> None:
        assert self.sampler is not None
        self._sampled_before = self.tokens_sampled()
        kill(self.sampler)

    def finish(self) -> None:
        """Returns when all groups were delivered and the engine has ended."""
        engine = self.engine
        assert engine is not None
        self.run.until(
            lambda: self.consumer.complete or engine.poll() is not None, "delivery of all groups"
        )
        assert self.consumer.complete, f"the engine ended\n{self.run.logs()}"
        engine.send_signal(signal.SIGTERM)
        self.run.ended(engine)

    def close(self) -> None:
        self.consumer.stop()
        for process in self.run.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
            kill(process)

    # ---- looks ----

    @property
    def seconds(self) -> float:
        """Since its making."""
        return time.monotonic() - self._began

    def left(self) -> Found:
        """The newest attempt of each trajectory, as the journal has it; no engine runs."""
        found = Found()
        if not (self.run_folder / "journal.sqlite").exists():
            return found
        with closing(JournalReader(self.run_folder)) as reader:
            for attempt in reader.attempts(LogState.OPEN, LogState.COMPLETE):
                trajectory = attempt.name.rpartition("/")[0]
                events = reader.log(attempt.name)
                if any(isinstance(event, Ended) and not event.error for event in events):
                    found.ended[trajectory] = attempt.name
                elif any(isinstance(event, Opened) for event in events):
                    found.in_flight[trajectory] = attempt.name
        return found

    def tokens_sampled(self) -> int:
        """By all samplers so far, all requests together."""
        with urllib.request.urlopen(
            f"http://127.0.0.1:{self._sampler_port}/metrics", timeout=10
        ) as page:
            match = _SAMPLED.search(page.read().decode())
        assert match is not None
        return self._sampled_before + int(float(match[1]))

    def effects(self) -> list[tuple[str, str]]:
        """(call id, session) of each call that has run, in order."""
        rows = (
            line.split(" ") for line in self.effects_file.read_text(encoding="utf-8").splitlines()
        )
        return [(call_id, session) for call_id, session in rows]

    def logged(self, event: str) -> list[dict[str, Any]]:
        """Lines of the engine's structured log about one event, of all its lives."""
        rows = []
        file = self.run_folder / "engine.jsonl"
        for line in file.read_text(errors="replace", encoding="utf-8").splitlines():
            if f'"{event}"' not in line:
                continue
            try:
                row = json.loads(line)
            except ValueError:
                continue  # a life that was killed while it wrote
            if row.get("event") == event:
                rows.append(row)
        return rows

    def replay(self) -> str:
        """What `engine replay` says of the run; it must succeed."""
        done = subprocess.run(
            [str(Path(sys.executable).parent / "engine"), "replay", str(self.run_folder)],
            env={**os.environ, **self.run.environment},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        self.run.until(condition, what)
