"""Evaluation suites of a recipe, and what became of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.scripted import ScriptRequest
from tests.support.dialogue import ANSWER, CALL
from tests.support.engines import Running
from tests.support.waiting import until
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.rpc.errors import ServiceError
from toolwright.types import WeightVersion

if TYPE_CHECKING:
    from tests.integration.engine.conftest import World

NONE = {"steps": 2, "groups_per_step": 1, "group_size": 1}


def suite(name: str = "heldout", n: int = 4, **fields: Any) -> dict[str, Any]:
    return {"name": name, "source": "task.py:training", "n": n, **fields}


def lane(*suites: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"evaluation": {"suites": list(suites), **fields}}


def lines(folder: Path, name: str = "evaluations") -> list[dict[str, Any]]:
    file = folder / f"{name}.jsonl"
    return (
        [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        if file.exists()
        else []
    )


def rows(folder: Path, name: str = "heldout", step: int = 0) -> list[dict[str, Any]]:
    """Lines of one evaluation, by row."""
    (file,) = (folder / "evaluations").glob(f"{name}@*.{step}.jsonl")
    found = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return sorted(found, key=lambda row: int(row["index"]))


def cut(file: Path, keep: int) -> None:
    """What a kill in the middle of line `keep` leaves."""
    whole = file.read_text(encoding="utf-8").splitlines(keepends=True)
    file.write_text("".join(whole[:keep]) + whole[keep][:20], encoding="utf-8")


def lost() -> ServiceError:
    return ServiceError(reasons.ERROR_REASON_SESSION_LOST, "gone")


def v(version: WeightVersion, step: int) -> WeightVersion:
    return WeightVersion(lineage=version.lineage, step=step)


async def evaluated(run: Running, count: int) -> None:
    await until(lambda: len(lines(run.folder)) == count, f"{count} evaluations")


def of_evaluation(here: World) -> list[Any]:
    return [s for s in here.sampler.requests if str(s.body["routing_key"]).startswith("e")]


class Watched:
    """A script that notes, at every request, what the sampler is doing."""

    def __init__(self) -> None:
        self.here: World
        self.most = 0
        self.versions: dict[str, set[str]] = {"e": set(), "g": set()}

    def __call__(self, request: ScriptRequest) -> Sequence[int]:
        scheduler, codec = self.here.sampler.scheduler, self.here.codec
        self.most = max(self.most, scheduler.running)
        self.versions[request.conversation[0]].add(scheduler.weight_version)
        said = codec.decode(request.input_ids)
        return codec.encode(ANSWER if "</result>" in said else CALL)
