"""A crowd of trajectories in real processes: samplers, tool service, engine, and a consumer.

A test does the harm; here the processes are started, looked at, and brought to the end. Their
witnesses write the history of the run (`witnesses.py`).
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import grpc

from bench.engine.plan import STOP
from bench.engine.processes.policy import write_policy
from bench.history.events import (
    Admitted,
    AnyEvent,
    Fault,
    LifeBegan,
    LifeEnded,
    Offered,
    Planned,
    SessionClosed,
    SessionOpened,
)
from bench.history.stored import read_appended
from engine.core.trajectory.events import Ended, Opened
from engine.serving.journal.logs import LogState
from engine.serving.journal.reader import JournalReader
from tests.chaos.conftest import ROOT, Run, kill, listens
from tests.chaos.consumer import Settings
from tests.chaos.harm.proxy import Link, Proxy
from tests.chaos.workload import VARIABLE, Workload
from tests.support.net import free_port
from tests.support.recipes import merged, to_toml
from tests.support.weights import write_weights
from toolwright.rollout.v1 import rollout_pb2, rollout_pb2_grpc
from toolwright.rpc import options

SCRIPT, TOOL = ROOT / "tests/chaos/script.py", ROOT / "tests/chaos/counting_tool.py"
CLOCK = ROOT / "tests/chaos/harm/clock"
LOOK_S = 0.25
"""Time between looks at the engine's status."""
RPC_S = 5.0

_SAMPLED = re.compile(r"^sglang:generation_tokens_total\S* (\S+)$", re.MULTILINE)


@dataclass(slots=True)
class Found:
    """What a crash left in the journal, by trajectory: attempts that ended, and those in flight."""

    ended: dict[str, str] = field(default_factory=dict)
    in_flight: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Sampler:
    """A scripted sampler. before: tokens that its earlier lives sampled."""

    name: str
    port: int
    log: Path
    process: subprocess.Popen[bytes] | None = None
    before: int = 0


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
        steps: int = 0,
        eta: int = 0,
        samplers: int = 1,
        linked: bool = False,
        lease_s: float = 60.0,
        checkpoint_every: int = 1,
        changes: Mapping[str, Any] | None = None,
        tool_options: tuple[str, ...] = (),
        workers: int = 0,
    ) -> None:
        """rate: tokens a second of one stream. steps: optimizer steps, each with a publish; 0 =
        one without. eta: the bound of staleness. linked: connections run through links that a
        test can cut. lease_s: of a tool session. checkpoint_every: steps between
        the consumer's checkpoints. changes: of the recipe's tables. workers: of the engine."""
        self.folder = folder
        self.groups, self.size, self.steps, self.eta = groups, size, max(1, steps), eta
        self.effects_file = folder / "effects.jsonl"
        self.workload = replace(workload, effects=str(self.effects_file))
        self._rate = rate
        self.lease_s = lease_s
        self._tool_options = tool_options
        self.engine_options: tuple[str, ...] = ("--workers", str(workers)) if workers else ()
        self.tools_port, self.engine_port = free_port(), free_port()
        self.samplers = [
            Sampler(
                name=f"sampler{number}", port=free_port(), log=folder / f"sampler{number}.jsonl"
            )
            for number in range(samplers)
        ]
        self._proxy = Proxy() if linked else None
        self.links: dict[str, Link] = {}
        """By the name of the server's process: "tools", "engine", "sampler0"."""
        path = os.pathsep.join(
            part for part in (str(ROOT), os.environ.get("PYTHONPATH", "")) if part
        )
        self.run = Run(
            folder=folder,
            recipe=folder / "recipe.toml",
            environment={VARIABLE: self.workload.to_json(), "PYTHONPATH": path},
        )
        self.clock = folder / "clock"
        self.clock.write_bytes(bytes(8))
        write_policy(folder / "policy", STOP)
        ways = {
            "tools": self._way("tools", self.tools_port),
            "engine": self._way("engine", self.engine_port),
            **{one.name: self._way(one.name, one.port) for one in self.samplers},
        }
        tables = merged(self._tables(places, ways), changes or {})
        self.run.recipe.write_text(to_toml(tables), encoding="utf-8")
        self.history_of_consumer = folder / "consumer.jsonl"
        weights = folder / "policies" / "weights"
        if steps:
            write_weights(weights)
        self._settings = folder / "consumer.json"
        self._settings.write_text(
            Settings(
                address=f"127.0.0.1:{ways['engine']}",
                history=str(self.history_of_consumer),
                checkpoint=str(folder / "checkpoint"),
                weights=str(weights) if steps else "",
                steps=self.steps,
                groups_per_step=groups // self.steps,
                checkpoint_every=checkpoint_every,
                train_s=0.3 if steps else 0.0,
            ).to_json(),
            encoding="utf-8",
        )
        self._began = time.monotonic()
        self._lives = 0
        self._events: list[AnyEvent] = [
            Planned(
                at=self._began,
                eta=eta,
                batch=groups // self.steps * size,
                group_size=size,
                steps=self.steps,
                stateful=self.workload.stateful,
            )
        ]
        self.kills = 0
        self.found: list[Found] = []
        """What each crash of the engine left."""
        self.engine: subprocess.Popen[bytes] | None = None
        self.tools: subprocess.Popen[bytes] | None = None
        self.consumer: subprocess.Popen[bytes] | None = None
        self._ended = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def _way(self, name: str, port: int) -> int:
        """The port by which clients reach a server."""
        if self._proxy is None:
            return port
        self.links[name] = self._proxy.link(free_port(), port)
        return self.links[name].port

    def _tables(self, places: int, ways: Mapping[str, int]) -> dict[str, Any]:
        workload = self.workload
        return {
            "run": {
                "name": "crowd",
                "folder": "run",
                "steps": self.steps,
                "groups_per_step": self.groups // self.steps,
                "group_size": self.size,
                "max_staleness": self.eta,
                "correction": "decoupled" if self.eta else "bypass",
                "engine": f"127.0.0.1:{self.engine_port}",
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
            "sampler": {
                "endpoints": [f"http://127.0.0.1:{ways[one.name]}" for one in self.samplers]
            },
            "tools": {
                "sleep": {
                    "service": f"127.0.0.1:{ways['tools']}",
                    "run_limit_s": 30.0,
                    "lease_s": self.lease_s,
                }
            },
            "engine": {"max_concurrent": places, "history": "all", "drain_s": 0.5},
        }

    @property
    def run_folder(self) -> Path:
        return self.run.folder / "run"

    # ---- processes ----

    def start_sampler(self, number: int = 0, *, wait: bool = True) -> None:
        one = self.samplers[number]
        one.process = self.run.start(
            "bench", "scripted-sampler", "--port", str(one.port),
            "--script", f"{SCRIPT}:reply",
            "--tokens-per-second", str(self._rate), "--tokens-per-chunk", "4",
            "--log", str(one.log),
        )  # fmt: skip
        if wait:
            self._until_listens(one.process, one.port)

    def start_tools(self, *, wait: bool = True) -> None:
        self.tools = self.run.start(
            "toolsvc", "serve", str(TOOL),
            "--listen", f"127.0.0.1:{self.tools_port}", *self._tool_options,
        )  # fmt: skip
        if wait:
            self._until_listens(self.tools, self.tools_port)

    def start_engine(self, *, wait: bool = True) -> None:
        clock = {
            "CHAOS_CLOCK": str(self.clock),
            "PYTHONPATH": os.pathsep.join([str(CLOCK), self.run.environment["PYTHONPATH"]]),
        }
        self.note(LifeBegan(at=time.monotonic(), life=self._lives))
        self.engine = self.run.start(
            "engine", "serve", str(self.run.recipe), *self.engine_options, environment=clock
        )
        if wait:
            self._until_listens(self.engine, self.engine_port)

    def start_consumer(self) -> None:
        self.consumer = self.run.start("python", "-m", "tests.chaos.consumer", str(self._settings))

    def _until_listens(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.run.until(lambda: listens(port) or process.poll() is not None, f"listener on {port}")
        assert process.poll() is None, self.run.logs()

    def start(self) -> None:
        """Returns when the engine listens."""
        self.start_tools(wait=False)
        for number in range(len(self.samplers)):
            self.start_sampler(number, wait=False)
        for one in self.samplers:
            assert one.process is not None
            self._until_listens(one.process, one.port)
        assert self.tools is not None
        self._until_listens(self.tools, self.tools_port)
        self.start_engine(wait=False)
        self.start_consumer()
        assert self.engine is not None
        self._until_listens(self.engine, self.engine_port)
        self._watcher.start()

    def kill_engine(self) -> Found:
        """Returns what it left."""
        assert self.engine is not None
        assert self.engine.poll() is None, f"it ended by itself\n{self.run.logs()}"
        kill(self.engine)
        return self._note_crash(killed=True)

    @property
    def workers(self) -> dict[str, int]:
        """Processes of the engine's workers that live and are ready, by name."""
        pids = {row["worker"]: row["pid"] for row in self.logged("worker_started")}
        lost = {row["worker"] for row in self.logged("worker_lost")}
        ready = {row["worker"] for row in self.logged("worker_ready")} - lost
        return {name: pids[name] for name in ready}

    def stop_engine(self) -> Found:
        """SIGTERM, as a supervisor sends it; returns what the engine left."""
        assert self.engine is not None
        self.engine.send_signal(signal.SIGTERM)
        self.run.ended(self.engine)
        return self._note_crash(killed=False)

    def _note_crash(self, *, killed: bool) -> Found:
        self.kills += 1
        self.life_ended(killed=killed)
        self.found.append(self.left())
        return self.found[-1]

    def life_ended(self, *, killed: bool) -> None:
        """The engine's process is gone."""
        self.note(LifeEnded(at=time.monotonic(), life=self._lives, killed=killed))
        self._lives += 1

    def kill_tools(self) -> None:
        assert self.tools is not None
        kill(self.tools)
        self.tools_ended()

    def tools_ended(self) -> None:
        """The tool service's processes are gone, and its sessions with them."""
        opened: dict[str, None] = {}
        for event in read_appended(self.effects_file):
            match event:
                case SessionOpened(session=session):
                    opened[session] = None
                case SessionClosed(session=session):
                    opened.pop(session, None)
        for event in self._events:
            if isinstance(event, SessionClosed):
                opened.pop(event.session, None)
        for session in opened:
            self.note(SessionClosed(at=time.monotonic(), session=session))

    def kill_sampler(self, number: int = 0) -> None:
        one = self.samplers[number]
        assert one.process is not None
        one.before = self._tokens_of(one)
        kill(one.process)

    def finish(self) -> None:
        """Returns when all groups were delivered and the engine has ended."""
        engine = self.engine
        assert engine is not None
        self.run.until(lambda: self.complete or engine.poll() is not None, "delivery of all groups")
        assert self.complete, f"the engine ended\n{self.run.logs()}"
        engine.send_signal(signal.SIGTERM)
        self.run.ended(engine)
        self.life_ended(killed=False)

    @property
    def complete(self) -> bool:
        """The consumer has made its last step. AssertionError if it ended before."""
        assert self.consumer is not None
        code = self.consumer.poll()
        assert code in (None, 0, -signal.SIGKILL), f"the consumer ended: {code}\n{self.run.logs()}"
        return code == 0

    def close(self) -> None:
        self._ended.set()
        if self._watcher.is_alive():
            self._watcher.join()
        for process in self.run.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
            kill(process)
        if self._proxy is not None:
            self._proxy.close()

    # ---- looks ----

    @property
    def tools_address(self) -> str:
        """The tool service's own address, past its link."""
        return f"127.0.0.1:{self.tools_port}"

    @property
    def seconds(self) -> float:
        """Since its making."""
        return time.monotonic() - self._began

    def note(self, event: AnyEvent) -> None:
        """Adds what the harness did or saw to the history."""
        self._events.append(event)

    def harm(self, kind: str, detail: str = "") -> None:
        """Notes a fault."""
        self.note(Fault(at=time.monotonic(), kind=kind, detail=detail))

    @property
    def events(self) -> list[AnyEvent]:
        """What the harness did and saw."""
        return list(self._events)

    def _watch(self) -> None:
        """Notes the numbers of the staleness bound, as the engine's status has them."""
        address = f"127.0.0.1:{self.engine_port}"
        while not self._ended.is_set():
            with grpc.insecure_channel(address, options=options.CHANNEL) as channel:
                stub = rollout_pb2_grpc.RolloutServiceStub(channel)
                try:
                    while not self._ended.wait(LOOK_S):
                        status = stub.GetStatus(rollout_pb2.GetStatusRequest(), timeout=RPC_S)
                        if status.HasField("version"):
                            self.note(
                                Admitted(
                                    at=time.monotonic(),
                                    step=status.version.step,
                                    accepted=status.accepted,
                                    running=status.running,
                                )
                            )
                except grpc.RpcError:
                    self._ended.wait(LOOK_S)

    def offered(self) -> list[Offered]:
        """Every offer of a group so far."""
        return [one for one in read_appended(self.history_of_consumer) if isinstance(one, Offered)]

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
        return sum(one.before + self._tokens_of(one) for one in self.samplers)

    def _tokens_of(self, one: Sampler) -> int:
        with urllib.request.urlopen(f"http://127.0.0.1:{one.port}/metrics", timeout=10) as page:
            match = _SAMPLED.search(page.read().decode())
        assert match is not None
        return int(float(match[1]))

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
