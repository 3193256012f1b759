"""Checks on a group's work before it is merged: the work as a whole, then each candidate.

Invalid work is refused whole, before anything changes. A candidate that cannot be registered is
left out, with a sentence that says why; the other candidates go on.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

import numpy as np

from memory.checks.runner import Runner
from memory.checks.verdicts import works_again
from memory.errors import BadWork
from memory.graph.decide import Candidate
from memory.graph.graph import Vectors
from memory.graph.guards import refusal, shown
from memory.types import GroupWork, Refused, RolloutWork, Stats, Tool

LONGEST_ID = 512
"""Characters of a group's or a trajectory's id."""
MOST_CANDIDATES, MOST_NAMES, MOST_EDGES = 1024, 4096, 16_384
"""Limits of a group: candidates of all its rollouts, names that they called, edges."""
_ITERATION = re.compile(r"/iteration [0-9]+\Z")
LARGEST = (1 << 53) - 1
"""Largest count: beyond it JSON readers lose the last digits."""


def check_work(work: GroupWork) -> None:
    """Raises BadWork if the work as a whole is invalid."""
    for what, name in [
        ("group", work.group),
        *(("trajectory", r.trajectory) for r in work.rollouts),
    ]:
        if not name or len(name) > LONGEST_ID or not _encodes(name):
            raise BadWork(f"{shown(name)} is not an id of a {what}: 1 to {LONGEST_ID} characters")
    if _ITERATION.search(work.group):
        raise BadWork(f"{shown(work.group)} is the name of an iteration: name the group otherwise")
    trajectories = [rollout.trajectory for rollout in work.rollouts]
    if len(set(trajectories)) < len(trajectories):
        raise BadWork(f"group {work.group} has a trajectory twice")
    if work.registers and work.registers not in trajectories:
        raise BadWork(
            f"group {work.group} registers the tools of {shown(work.registers)}, which is not one "
            "of its rollouts"
        )
    if not 0 < work.delta <= 1:
        raise BadWork(f"delta is {work.delta}, and not above 0 and at most 1")
    _at_most("candidates", sum(len(one.candidates) for one in work.rollouts), MOST_CANDIDATES)
    _at_most("names of called tools", sum(len(one.used) for one in work.rollouts), MOST_NAMES)
    _at_most("edges", sum(len(one.edges) for one in work.rollouts), MOST_EDGES)
    counts = [work.step, *work.counts.values()]
    for rollout in work.rollouts:
        counts += [count for *_, count in rollout.edges]
        for stats in rollout.used.values():
            _check_stats(stats)
            counts += [stats.calls, stats.successes]
    if not all(0 <= count <= LARGEST for count in counts):
        raise BadWork(f"group {work.group} has a count below 0 or above {LARGEST}")


def admitted(
    work: GroupWork, embed: Callable[[Sequence[Tool]], Vectors], runner: Runner | None
) -> tuple[list[Candidate], list[Refused]]:
    """(candidates to compare and register, candidates that are refused).

    runner: repeats the first call of each tool that is registered. Raises ChecksDown if it is
    unreachable.
    """
    refused: list[Refused] = []
    kept: list[tuple[tuple[int, int], Tool, bool]] = []
    for place, rollout in enumerate(work.rollouts):
        for number, tool in enumerate(rollout.candidates):
            reason = refusal(tool, work.reserved) or _made_before(rollout, number)
            if reason:
                refused.append(_refused(rollout, tool, reason))
            else:
                kept.append(((place, number), tool, rollout.trajectory == work.registers))
    vectors = _unit(embed([tool for _, tool, _ in kept]))
    candidates = []
    for (key, tool, registers), vector in zip(kept, vectors, strict=True):
        rollout = work.rollouts[key[0]]
        if not np.isfinite(vector).all():
            refused.append(
                _refused(rollout, tool, "its embedding holds a value that is not finite")
            )
            continue
        if registers and runner is not None and (reason := works_again(tool, runner)):
            # It worked for its rollout, so it still is a tool that others may be one with.
            refused.append(_refused(rollout, tool, reason))
            registers = False
        candidates.append(Candidate(key=key, tool=tool, vector=vector, registers=registers))
    return candidates, refused


def _unit(vectors: Vectors) -> Vectors:
    """Rows of length 1; a row of zeros stays."""
    if not len(vectors):
        return vectors
    wide = vectors.astype(np.float64)
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    unit: Vectors = (wide / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)
    return unit


def _made_before(rollout: RolloutWork, number: int) -> str:
    name = rollout.candidates[number].name
    if any(tool.name == name for tool in rollout.candidates[:number]):
        return f"this rollout made a tool {name} before"
    return ""


def _refused(rollout: RolloutWork, tool: Tool, reason: str) -> Refused:
    name = tool.name if len(tool.name) <= LONGEST_ID and _encodes(tool.name) else shown(tool.name)
    return Refused(trajectory=rollout.trajectory, name=name, reason=reason)


def _check_stats(stats: Stats) -> None:
    if not math.isfinite(stats.seconds) or stats.seconds < 0:
        raise BadWork(f"calls took {stats.seconds} s, which is no time")
    if stats.successes > stats.calls:
        raise BadWork(f"{stats.successes} of {stats.calls} calls worked, which is more than all")


def _at_most(what: str, found: int, most: int) -> None:
    if found > most:
        raise BadWork(f"the group has {found} {what}, at most {most} are allowed")


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
