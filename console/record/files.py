"""Reads the metrics that engine and learner leave in a run folder.

Owns the names of their files and fields. What is read is a stranger's: a line that is not what it
should be costs itself and is remarked upon, and no file is held whole. Of a step that was trained
twice (a restart goes on from a checkpoint) and of a version that was evaluated twice, the last
line counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from console.record.lines import number, objects, remark, step_of
from console.record.types import Evaluation, Record, Sample, Step

STEPS = "learner.jsonl"
IMITATION = "sft/sft.jsonl"
EVALUATIONS = "evaluations.jsonl"
SAMPLES = "samples.jsonl"
MEMORY_PAGE = "memory.html"
"""Page of the run's tool memory, if it has one."""

MOST_STEPS = 50_000
"""Steps that are held at once; of more, every second one is, then every fourth, and so on."""
LONGEST_NAME = 200
LONGEST_REASON = 1000
MOST_PARTS = 100
"""Parts of the reward that an evaluation keeps."""
MOST_RUNS_OF_TEXT = 2000
"""Segments of a sample."""

T = TypeVar("T")


def read_record(folder: Path) -> Record:
    """Everything that is there; a file that is missing is empty. OSError."""
    steps, of_steps = read_steps(folder / STEPS)
    imitation, of_imitation = read_steps(folder / IMITATION)
    evaluations, of_evaluations = read_evaluations(folder / EVALUATIONS)
    samples, of_samples = read_samples(folder / SAMPLES)
    return Record(
        steps=steps,
        evaluations=evaluations,
        samples=samples,
        imitation=imitation,
        remarks=(*of_steps, *of_imitation, *of_evaluations, *of_samples),
    )


def read_steps(path: Path) -> tuple[tuple[Step, ...], list[str]]:
    """(steps of a metrics file in their order, remarks)."""
    found: dict[int, Step] = {}
    every = 1
    last: Step | None = None

    def keep(one: Step) -> None:
        nonlocal every, last
        last = one
        if one.step % every == 0:
            found[one.step] = one
        if len(found) > MOST_STEPS:
            every *= 2
            for step in [step for step in found if step % every]:
                del found[step]

    remarks = _each(path, step, keep, "metrics")
    if last is not None:
        found[last.step] = last
    if every > 1:
        remarks.append(
            f"{path}: more than {MOST_STEPS:,} steps: one of {every} is read, and sums over steps "
            "are those of what is read"
        )
    return tuple(found[at] for at in sorted(found)), remarks


def read_evaluations(path: Path) -> tuple[tuple[Evaluation, ...], list[str]]:
    """(evaluations in the order of their steps, remarks)."""
    found: dict[tuple[str, int], Evaluation] = {}

    def keep(one: Evaluation) -> None:
        found[one.suite, one.step] = one

    remarks = _each(path, evaluation, keep, "evaluation")
    return tuple(sorted(found.values(), key=lambda e: e.step)), remarks


def read_samples(path: Path) -> tuple[tuple[Sample, ...], list[str]]:
    """(samples of each suite's first and last version, remarks)."""
    kept: dict[str, dict[int, dict[int, Sample]]] = {}

    def keep(one: Sample) -> None:
        by_step = kept.setdefault(one.suite, {})
        by_step.setdefault(one.step, {})[one.index] = one
        for middle in sorted(by_step)[1:-1]:
            del by_step[middle]

    remarks = _each(path, sample, keep, "sample")
    flat = [s for by_step in kept.values() for found in by_step.values() for s in found.values()]
    return tuple(sorted(flat, key=lambda s: (s.step, s.index))), remarks


def step(row: Mapping[str, Any]) -> Step | None:
    """The step of a line; None for another line."""
    at = step_of(row)
    if at is None:
        return None
    numbers = ((key, number(value)) for key, value in row.items() if key != "step")
    return Step(
        step=at,
        values={key: value for key, value in numbers if value is not None},
        lineage=_text(row.get("lineage"), LONGEST_NAME),
        worthless=_text(row.get("worthless"), LONGEST_REASON),
        call_error=_text(row.get("call_error"), LONGEST_REASON),
        reward_error=_text(row.get("reward_error"), LONGEST_REASON),
    )


def evaluation(row: Mapping[str, Any]) -> Evaluation | None:
    """The evaluation of a line; None for another line."""
    suite, at, reward = row.get("suite"), step_of(row), number(row.get("reward"))
    n, stderr = number(row.get("n")), number(row.get("stderr"))
    if not isinstance(suite, str) or len(suite) > LONGEST_NAME or at is None:
        return None
    if reward is None or n is None or n < 1 or (stderr is not None and stderr < 0):
        return None
    return Evaluation(
        suite=suite,
        step=at,
        n=int(n),
        reward=reward,
        lowest=number(row.get("lowest")),
        highest=number(row.get("highest")),
        stderr=stderr,
        temperature=number(row.get("temperature")),
        seconds=number(row.get("seconds")) or 0.0,
        parts=_parts(row.get("parts")),
        rates=_rates(row.get("rates")),
    )


def sample(row: Mapping[str, Any]) -> Sample | None:
    """The sample of a line; None for another line."""
    suite, at, index = row.get("suite"), step_of(row), number(row.get("index"))
    reward, segments = number(row.get("reward")), row.get("segments")
    answers, timings = row.get("answers", []), row.get("timings", {})
    if not isinstance(suite, str) or len(suite) > LONGEST_NAME or at is None or index is None:
        return None
    if reward is None or not isinstance(segments, list) or not isinstance(answers, list):
        return None
    runs = [(s.get("author"), s.get("text")) for s in segments if isinstance(s, dict)]
    if not all(isinstance(part, str) for run in runs for part in run):
        return None
    times = timings.items() if isinstance(timings, dict) else ()
    return Sample(
        suite=suite,
        step=at,
        index=int(index),
        reward=reward,
        stop_reason=_text(row.get("stop_reason"), LONGEST_NAME),
        answers=tuple(map(str, answers)),
        segments=tuple((str(author), str(text)) for author, text in runs[:MOST_RUNS_OF_TEXT]),
        timings={str(k): v for k, v in ((k, number(v)) for k, v in times) if v is not None},
    )


def _each(
    path: Path,
    parse: Callable[[Mapping[str, Any]], T | None],
    keep: Callable[[T], None],
    what: str,
) -> list[str]:
    """Gives every line that is one to `keep`, in the file's order. Remarks on the others."""
    if not path.is_file():
        return []
    broken = []
    for place, row in objects(path):
        one = parse(row) if row is not None else None
        if one is None:
            broken.append(place)
        else:
            keep(one)
    return remark(path, broken, what)


def _parts(given: object) -> dict[str, float]:
    """The finite ones, at most MOST_PARTS of them."""
    rows = islice(given.items(), MOST_PARTS) if isinstance(given, dict) else ()
    numbers = ((_text(name, LONGEST_NAME), number(value)) for name, value in rows)
    return {name: value for name, value in numbers if value is not None}


def _rates(given: object) -> dict[str, float]:
    """The finite ones of {name: {"rate": value}}, at most MOST_PARTS of them."""
    rows = given.items() if isinstance(given, dict) else ()
    return _parts({name: one.get("rate") for name, one in rows if isinstance(one, dict)})


def _text(value: object, longest: int) -> str:
    return value[:longest] if isinstance(value, str) else ""
