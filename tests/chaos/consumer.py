"""A learner without torch: leases, trains nothing, publishes, keeps checkpoints, acknowledges.

    python -m tests.chaos.consumer SETTINGS.json

Its client, ledger and lease loop are the learner's own. What it sees goes to the history file of
its settings. It exits with 0 after the last step; a process that is started again goes on at its
newest checkpoint, as `learner.loop.start` does.

Invariants
- A checkpoint is a file that appears whole. Weights that died with a process between publish and
  checkpoint belong to an abandoned lineage.
- Before each checkpoint the groups that it holds are leased once more. If a group has changed
  since its first lease, the history has two hashes under its number.
"""

from __future__ import annotations

import json
import secrets
import shutil
import sys
import time
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path
from random import Random

from bench.history.events import (
    Acknowledged,
    Offered,
    Published,
    Publishing,
    Restored,
    Trained,
)
from bench.history.members import member_of
from bench.history.stored import Appender
from learner.intake.client import EngineClient
from learner.intake.first_version import first_version
from learner.intake.lease import lease_step
from learner.intake.ledger import Ledger
from toolwright.types import Group, WeightVersion

PATIENCE_S = 300.0
LEASE_WAIT_S = 0.5
LOOK_AGAIN_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """weights: a whole policy folder, whose copies are published; "" = nothing is published.
    train_s: longest time of a step, in seconds."""

    address: str
    history: str
    checkpoint: str
    weights: str
    steps: int
    groups_per_step: int
    checkpoint_every: int = 1
    train_s: float = 0.0

    def to_json(self) -> str:
        return json.dumps(asdict(self))


@dataclass(slots=True)
class State:
    """What a checkpoint holds."""

    version: WeightVersion
    ledger: Ledger = field(default_factory=Ledger)

    def save(self, file: Path) -> None:
        fresh = file.with_suffix(".new")
        head = json.dumps({"lineage": self.version.lineage, "step": self.version.step})
        fresh.write_text(f"{head}\n{self.ledger.dump()}", encoding="utf-8")
        fresh.rename(file)

    @classmethod
    def load(cls, file: Path) -> State | None:
        if not file.exists():
            return None
        head, _, ledger = file.read_text(encoding="utf-8").partition("\n")
        return cls(version=WeightVersion(**json.loads(head)), ledger=Ledger.parse(ledger))


class Consumer:
    """One life of the process. Call `run` once."""

    def __init__(self, settings: Settings, client: EngineClient) -> None:
        self._settings = settings
        self._client = client
        self._lines = Appender(Path(settings.history))
        self._file = Path(settings.checkpoint)
        self._state = State(WeightVersion(lineage="", step=0))

    def run(self) -> None:
        self._start()
        settings, state = self._settings, self._state
        while state.version.step < settings.steps:
            step = state.version.step + 1
            leased = lease_step(
                self,
                state.ledger,
                version=state.version,
                count=settings.groups_per_step,
                wait=LEASE_WAIT_S,
                say=say,
                heartbeat=lambda: None,
                why_none=lambda: "",
                waiting=nullcontext,
            )
            trained = tuple(group.sequence_number for group in leased.groups)
            self._lines.write(
                Trained(at=now(), lineage=state.version.lineage, step=step, sequences=trained)
            )
            time.sleep(Random(f"{step} {state.version.lineage}").random() * settings.train_s)
            at = state.version
            state.version = WeightVersion(lineage=at.lineage, step=step)
            if settings.weights:
                self._publish(None)
            if step % settings.checkpoint_every == 0 or step == settings.steps:
                self._look_again()
                state.save(self._file)
                self._acknowledge()

    def lease(self, *, after: int, count: int, version: WeightVersion, wait: float) -> list[Group]:
        """The client's lease; each group is written down as it comes."""
        groups = self._client.lease(after=after, count=count, version=version, wait=wait)
        for group in groups:
            self._lines.write(offered(group, version))
        return groups

    def _look_again(self) -> None:
        """Each group at the version that it was trained at: at a later one it may be too old."""
        ledger = self._state.ledger
        after = ledger.acknowledged
        for (lineage, step), run in groupby(ledger.entries, lambda one: (one.lineage, one.step)):
            numbers = [entry.sequence_number for entry in run]
            version = WeightVersion(lineage=lineage, step=step)
            self.lease(after=after, count=len(numbers), version=version, wait=LOOK_AGAIN_S)
            after = max(numbers)

    def _start(self) -> None:
        """As `learner.loop.start.start`, by the same rule."""
        saved = State.load(self._file)
        while (newest := self._client.join().version) is None:
            time.sleep(0.1)
        first = first_version(
            saved.version if saved else None, newest, lambda: secrets.token_hex(4)
        )
        begun = first.parent or first.version
        if Path(self._settings.history).stat().st_size:
            self._lines.write(Restored(at=now(), lineage=begun.lineage, step=begun.step))
        self._state = saved or State(first.version)
        self._state.version = first.version
        if first.served:
            return
        if self._settings.weights:
            self._publish(first.parent)
        if saved is not None:
            self._acknowledge()

    def _publish(self, parent: WeightVersion | None) -> None:
        version = self._state.version
        weights = Path(self._settings.weights)
        folder = weights.with_name(f"{version.lineage}-{version.step}")
        if not folder.exists():
            half = folder.with_name(f".{folder.name}")
            shutil.copytree(weights, half, dirs_exist_ok=True)
            half.rename(folder)
        self._lines.write(Publishing(at=now(), version=version, parent=parent))
        self._client.publish(version, parent, str(folder))
        self._lines.write(Published(at=now(), version=version))

    def _acknowledge(self) -> None:
        ledger = self._state.ledger
        self._client.acknowledge(ledger.mark)
        self._lines.write(Acknowledged(at=now(), mark=ledger.mark))
        ledger.settle(ledger.mark)


def offered(group: Group, version: WeightVersion) -> Offered:
    """The event of a group; the client has compared its hash with the bytes that came."""
    return Offered(
        at=now(),
        sequence=group.sequence_number,
        group=group.id,
        hash=group.content_hash,
        bytes_hash=group.content_hash,
        version=version,
        members=tuple(map(member_of, group.trajectories)),
    )


def now() -> float:
    """Seconds on the clock that all processes of a machine share."""
    return time.monotonic()


def say(line: str) -> None:
    """A line of the process's log."""
    print(line, flush=True)


def main() -> None:
    settings = Settings(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    with EngineClient(settings.address, patience=PATIENCE_S, say=say) as client:
        Consumer(settings, client).run()


if __name__ == "__main__":
    main()
