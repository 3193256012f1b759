"""Imitation: the trainable tokens of a trajectories file, token by token.

The order of the data is a function of the seed and the epoch, so that a position in it is one
number; a resumed run sees just what an uninterrupted one would.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from learner.config import Loss, SftTable
from learner.errors import DataError, DivergedError
from learner.intake.ledger import Ledger
from learner.intake.origin import Origin
from learner.lock import only_learner
from learner.metrics import MetricsLog
from learner.model import parallel
from learner.model.policy import Policy, load_policy
from learner.progress import Reporter
from learner.saving.checkpoint import Checkpoints, check_fits, read_state
from learner.training.batch import Row, check_vocabulary, rows_of
from learner.training.memory import free_bytes, too_long
from learner.training.objective import imitation
from learner.training.update import MOST_BROKEN, Part, counts_of, finite_gradients
from toolwright.recipe import Recipe
from toolwright.trajectory_files import UnreadableTrajectories, read_trajectories

LINE_EVERY = 10


def sft(recipe: Recipe) -> Path:
    """Trains as the [sft] table says and returns the final Hugging Face folder."""
    table = recipe.table("sft", SftTable)
    home = recipe.run_folder / "sft"
    final = recipe.resolve(table.output) if table.output is not None else home / "final"
    with (
        parallel.ranks(tensor=table.parallel.tensor, seed=table.seed),
        contextlib.ExitStack() as held,
    ):
        unlocked: str | None = None
        if parallel.is_first():
            unlocked = held.enter_context(only_learner(home))
            recipe.write_resolved("sft", table)
        source = recipe.resolve(table.model or recipe.shared.policy.model)
        policy = load_policy(source, table.optimizer, table.precision)
        origin = Origin(source)
        traces = load_traces(recipe.resolve(table.data), int(policy.shape["vocabulary"]), origin)
        checkpoints = Checkpoints(home / "checkpoints", table.keep_checkpoints)
        done = _resume(policy, table, checkpoints, len(traces))
        with Reporter("sft", table.steps, done, quiet=not parallel.is_first()) as report:
            report.say(f"{len(traces)} traces, {table.steps - done} steps to go from {source}")
            for doubt in filter(None, (unlocked, origin.sentence())):
                report.say(doubt)
            longest = max(row.count for rows in traces for row in rows)
            vocabulary = int(policy.shape["vocabulary"]) // parallel.tensor_size()
            sentence = too_long(longest, vocabulary, free_bytes(), mend="cut the traces")
            if sentence is not None:
                report.say(sentence)
            _train(policy, table, traces, checkpoints, done, home, report)
        policy.save(final)
    return final


def load_traces(path: Path, vocabulary: int, origin: Origin) -> list[list[Row]]:
    """Rows of every trajectory that has a trainable token. DataError when none has, and for a
    trajectory of another tokenizer than that of `origin`."""
    traces = []
    try:
        for trajectory in read_trajectories(path):
            origin.check(trajectory)
            if rows := rows_of(trajectory, temperature=1.0):
                traces.append(rows)
    except FileNotFoundError as error:
        raise DataError(
            f"no trajectories at {path}: `engine render RECIPE` writes sft.data"
        ) from error
    except UnreadableTrajectories as error:
        raise DataError(str(error)) from error
    if not traces:
        raise DataError(f"{path} holds no trajectory with a trainable token")
    for rows in traces:
        check_vocabulary(rows, vocabulary)
        # Demonstrations are fitted at temperature 1, whatever they were sampled at.
        rows[:] = [replace(row, temperature=np.ones_like(row.temperature)) for row in rows]
    return traces


def order(count: int, seed: int, position: int) -> Iterator[int]:
    """Endless order of `count` traces from a position on: a fresh permutation each epoch."""
    while True:
        epoch, start = divmod(position, count)
        permutation = np.random.default_rng((seed, epoch)).permutation(count)
        for index in permutation[start:]:
            position += 1
            yield int(index)


def _train(
    policy: Policy,
    table: SftTable,
    traces: list[list[Row]],
    checkpoints: Checkpoints,
    done: int,
    home: Path,
    report: Reporter,
) -> None:
    picks = order(len(traces), table.seed, done * table.batch_size)
    broken = 0
    log = MetricsLog(home, "sft") if parallel.is_first() else None
    for step in range(done, table.steps):
        started = time.monotonic()
        rows = [row for _ in range(table.batch_size) for row in traces[next(picks)]]
        counts = counts_of(rows, drop_silent=False)
        part = Part(rows=rows, counts=counts, loss=Loss(), everything=True)
        rate = policy.set_rate(step, table.steps)
        stats, norm, dropped = finite_gradients(
            policy, part, imitation, table.tokens_per_microbatch, entropy="none"
        )
        if math.isfinite(norm):
            policy.update(norm)
            broken = 0
        else:
            broken += 1
            report.say(f"step {step + 1}: no finite gradient, the weights stay")
        seconds = time.monotonic() - started
        tokens = sum(row.length for row in rows)
        if log is not None:
            log.write(
                step + 1,
                {
                    "loss": stats.get("loss", math.nan),
                    "grad_norm": norm,
                    "nonfinite_rows": len(dropped),
                    "learning_rate": rate,
                    "tokens": tokens,
                    "tokens_per_s": tokens / seconds,
                    "step_s": seconds,
                },
            )
        if broken >= MOST_BROKEN:
            raise DivergedError(
                f"{MOST_BROKEN} steps in a row up to {step + 1} had no finite gradient: the "
                "policy's weights or sft.optimizer's rates are at fault; the newest checkpoint is "
                "from before"
            )
        last = step + 1 == table.steps
        report.step(
            step + 1,
            f"loss {stats.get('loss', math.nan):.4f}  {tokens / seconds:.0f} tokens/s",
            line=last or (step + 1) % LINE_EVERY == 0,
        )
        if last or (step + 1) % table.checkpoint_every == 0:
            state = {**_identity(policy, table, len(traces)), "step": step + 1}
            checkpoints.save(policy, step + 1, "sft", state, Ledger())
    if log is not None:
        log.__exit__(None, None, None)


def _identity(policy: Policy, table: SftTable, traces: int) -> dict[str, object]:
    return {
        "kind": "sft",
        "model": policy.shape,
        "optimizer": table.optimizer.kind,
        "precision": table.precision,
        "seed": table.seed,
        "batch_size": table.batch_size,
        "traces": traces,
    }


def _resume(policy: Policy, table: SftTable, checkpoints: Checkpoints, traces: int) -> int:
    if parallel.is_first():
        checkpoints.sweep()
    path = checkpoints.latest()
    if path is None:
        return 0
    state, _ledger = read_state(path)
    check_fits(state, _identity(policy, table, traces), path)
    checkpoints.load(policy, path)
    return int(state["step"])
