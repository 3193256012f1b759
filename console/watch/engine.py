"""What the engine says of itself, asked by GetStatus, and what that tells of the other processes.

An engine that is away is asked again; every question has a time-out. What it says is a stranger's:
numbers are taken where they are numbers.
"""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import grpc.aio

from console.record.resolved import Resolved
from toolwright.rollout.v1 import rollout_pb2 as rollout
from toolwright.rollout.v1 import rollout_pb2_grpc
from toolwright.rpc.channel import open_channel
from toolwright.rpc.options import TOKEN_VARIABLE, may_have_token

ANSWER_S = 3.0
LONGEST_TEXT = 300
LONGEST_PATH = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSays:
    """One answer. numbers, texts: of its detail. at: monotonic seconds.

    run_folder: of the run that it serves, as its machine names it; empty of an older engine.
    """

    state: str
    run_folder: str = ""
    step: int = 0
    running: int = 0
    accepted: int = 0
    evaluated: bool = False
    numbers: dict[str, float] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    at: float = 0.0

    def serves(self, run: Path, resolved: Resolved) -> bool:
        """Whether it is that run's, as far as it tells. A folder that is not on this machine is
        compared with what the run was told where it runs."""
        if self.run_folder in ("", str(run.resolve())):
            return True
        there = Path(resolved.recipe).parent / resolved.text("run.folder")
        return os.path.normpath(there) == self.run_folder and not os.path.exists(self.run_folder)

    def rate(self, before: EngineSays | None, name: str) -> float | None:
        """Growth of a total a second since another answer; None without one or after a restart."""
        if before is None or name not in self.numbers or name not in before.numbers:
            return None
        grown = self.numbers[name] - before.numbers[name]
        return grown / (self.at - before.at) if grown >= 0 and self.at > before.at else None


def address_of(resolved: Resolved, typed: str = "") -> str:
    """Address at which the run's engine may be queried; "" if no such address is known.

    A run folder may come from a stranger. So an address on another machine is used only if the user
    typed it: this process sends its bearer token there.
    """
    address = typed or resolved.text("run.engine")
    known = bool(address) and not address.endswith(":0")
    return address if known and may_have_token(address, typed) else ""


def not_asked(resolved: Resolved, typed: str = "") -> str:
    """The sentence for an engine that is not queried: the folder alone names its address."""
    address = resolved.text("run.engine")
    if typed or not address or may_have_token(address):
        return ""
    return (
        f"the folder names an engine on another machine, {address}, which is not queried: add "
        f"--engine {address} if it is yours"
    )


async def ask_of(run: Path, resolved: Resolved, typed: str = "") -> EngineSays | None:
    """The run's own engine, as `ask`. None also if another run's engine answers, or if the engine
    may not be queried (`address_of`)."""
    address = address_of(resolved, typed)
    if not address:
        return None
    says = await ask(address)
    return says if says is not None and says.serves(run, resolved) else None


async def ask(address: str, timeout: float = ANSWER_S) -> EngineSays | None:
    """The engine's status; None if no engine answers within `timeout` seconds."""
    try:
        # A new channel each time: one that failed waits longer and longer.
        async with open_channel(address, os.environ.get(TOKEN_VARIABLE, "")) as channel:
            stub = rollout_pb2_grpc.RolloutServiceStub(channel)
            answer = await stub.GetStatus(rollout.GetStatusRequest(), timeout=timeout)
    except (grpc.aio.AioRpcError, ValueError):
        return None
    return _says(answer)


def doing(says: EngineSays | None, *, batch: int, steps: int) -> dict[str, str]:
    """What each does now. batch: trajectories of a step; 0 where it is not known."""
    if says is None:
        return {"engine": "does not answer"}
    found = {"engine": says.state, "learner": "", "samplers": "", "tools": ""}
    numbers = says.numbers
    rows, done = numbers.get("evaluation_rows", 0), numbers.get("evaluated_rows", 0)
    if rows:
        found["engine"] += f", {done:g} of {rows:g} evaluation rows"
    found["engine"] += f", {says.running} in flight"
    if waiting := numbers.get("waiting_for_agents", 0):
        found["engine"] += f", {waiting:g} wait for an agent"
    if numbers.get("waits_for_task"):
        found["engine"] += ", waits for submitted tasks"
    # The batch of step v + 1 is there once (v + 1) batches were accepted.
    missing = (says.step + 1) * batch - says.accepted
    if says.state == "publishing":
        found["learner"] = "publishes"
    elif batch and says.step < steps and says.state != "starting":
        if missing > 0:
            found["learner"] = f"waits for rollouts: {batch - min(batch, missing)} of {batch}"
        else:
            found["learner"] = f"trains step {says.step + 1}"
    if "samplers" in numbers:
        up, whole = numbers.get("samplers_up", 0), numbers["samplers"]
        state = "paused" if says.state == "publishing" else f"{up:g} of {whole:g} up"
        found["samplers"] = f"{state}, {numbers.get('sampler_requests', 0):g} requests"
    if numbers.get("tool_sessions") is not None:
        found["tools"] = (
            f"{numbers['tool_sessions']:g} sessions, "
            f"{numbers.get('tool_calls_in_flight', 0):g} calls in flight"
        )
    return {name: words for name, words in found.items() if words}


def _says(answer: rollout.GetStatusResponse) -> EngineSays:
    numbers: dict[str, float] = {}
    texts: dict[str, str] = {}
    folder = ""
    for name, value in answer.detail.fields.items():
        if value.HasField("number_value") and math.isfinite(value.number_value):
            numbers[name] = value.number_value
        elif name == "run_folder":
            folder = value.string_value[:LONGEST_PATH]
        elif value.HasField("string_value"):
            texts[name] = value.string_value[:LONGEST_TEXT]
    return EngineSays(
        run_folder=folder,
        state=answer.state[:LONGEST_TEXT] or "running",
        step=answer.version.step,
        running=answer.running,
        accepted=answer.accepted,
        evaluated=answer.final_evaluation_done,
        numbers=numbers,
        texts=texts,
        at=time.monotonic(),
    )
