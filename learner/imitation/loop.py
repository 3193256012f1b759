"""Steps of imitation: a batch of traces, an update, at times the held-out loss and a checkpoint.

Invariants
- A run that was killed inside of an epoch continues with the traces that it has not seen. It also
  keeps the held-out loss of the best weights.
- The loss is the mean over all targets of the batch, whatever the micro-batches and ranks.
"""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from learner.config.objective import Loss
from learner.config.tables import SftTable
from learner.errors import DivergedError
from learner.imitation.heldout import Best, held_out_loss
from learner.imitation.order import batches, steps_of
from learner.imitation.traces import Trace, Traces
from learner.intake.ledger import Ledger
from learner.metrics import MetricsLog
from learner.model.policy import Policy
from learner.progress import Reporter
from learner.ranks import parallel
from learner.saving.checkpoint import Checkpoints
from learner.stop import Stop
from learner.training.minibatch import MiniBatch, counts_of
from learner.training.objective import imitation
from learner.training.update import MOST_BROKEN, finite_gradients

LINE_EVERY = 10


@dataclass(slots=True, kw_only=True)
class Imitation:
    """One run."""

    table: SftTable
    policy: Policy
    traces: Traces
    heldout: tuple[Trace, ...]
    checkpoints: Checkpoints
    identity: dict[str, Any]
    """Settings that a checkpoint must agree with."""
    report: Reporter
    log: MetricsLog | None
    """None on ranks other than the first."""
    stop: Stop
    best_folder: Path
    best: Best = field(default_factory=Best)
    broken: int = 0

    @property
    def steps(self) -> int:
        return steps_of(self.table, len(self.traces.traces))


def train(run: Imitation, done: int) -> None:
    """The steps after `done`.

    Raises DivergedError if several steps in a row had no finite gradient, and StoppedError after a
    stop request on any rank. Then the finished steps are in a checkpoint.
    """
    count = len(run.traces.traces)
    if done == 0 and run.heldout:
        _write(run, 0, _measure_heldout(run, 0))
    run.stop.begin_saving()
    for step, chosen in enumerate(batches(run.table, count, done), done + 1):
        values = _update(run, step, [run.traces.traces[index] for index in chosen])
        values["epoch"] = min(step * run.table.batch_size, run.table.shown(count)) / count
        last = step == run.steps
        measured = bool(run.heldout) and (last or step % run.table.heldout.every == 0)
        if measured:
            values |= _measure_heldout(run, step)
        _write(run, step, values)
        if run.broken >= MOST_BROKEN:
            raise DivergedError(
                f"{MOST_BROKEN} steps in a row up to {step} had no finite gradient: check the "
                "policy's weights and lower sft.optimizer.lr; the newest checkpoint is from before"
            )
        run.report.step(step, _note(values), line=last or measured or step % LINE_EVERY == 0)
        stopped = not last and parallel.on_any(run.stop.requested is not None)
        if last or stopped or step % run.table.checkpoint_every == 0:
            state = {**run.identity, "step": step, "best": asdict(run.best)}
            run.checkpoints.settle()
            run.checkpoints.begin(run.policy, step, "sft", state, Ledger())
            if last or stopped or not run.table.background_checkpoints:
                run.checkpoints.settle()
        if stopped:
            raise run.stop.error(step)


def _update(run: Imitation, step: int, traces: list[Trace]) -> dict[str, Any]:
    """Takes one optimizer step. Returns its metrics."""
    started = time.monotonic()
    rows = list(chain.from_iterable(trace.rows for trace in traces))
    counts = counts_of(rows, drop_silent=False)
    part = MiniBatch(rows=rows, counts=counts, loss=Loss(), all_rows=True)
    rate = run.policy.set_rate(step - 1, run.steps)
    stats, norm, dropped = finite_gradients(
        run.policy, part, imitation, run.table.tokens_per_microbatch, entropy="none"
    )
    if math.isfinite(norm):
        run.policy.update(norm)
        run.broken = 0
    else:
        run.broken += 1
        run.report.say(f"step {step}: no finite gradient, so the weights did not move")
    seconds = time.monotonic() - started
    tokens = sum(row.length for row in rows)
    loss = stats.get("loss", math.nan)
    return {
        "loss": loss,
        "perplexity": perplexity(loss),
        "grad_norm": norm,
        "nonfinite_rows": len(dropped),
        "learning_rate": rate,
        "traces": len(traces),
        "dropped_long": run.traces.too_long,
        "tokens": tokens,
        "trained_tokens": sum(part.counts),
        "tokens_per_s": tokens / seconds,
        "step_s": seconds,
    }


def _measure_heldout(run: Imitation, step: int) -> dict[str, Any]:
    """Measures the held-out loss, and saves the weights if it is the lowest so far."""
    started = time.monotonic()
    loss = held_out_loss(run.policy, run.heldout, run.table.tokens_per_microbatch)
    if loss < run.best.loss:
        run.best = Best(step=step, loss=loss)
        run.policy.save(run.best_folder)
    return {
        "heldout_loss": loss,
        "heldout_perplexity": perplexity(loss),
        "heldout_best_step": run.best.step,
        "heldout_s": time.monotonic() - started,
    }


def _write(run: Imitation, step: int, values: dict[str, Any]) -> None:
    if run.log is not None:
        run.log.write(step, values)


def _note(values: dict[str, Any]) -> str:
    held = f"  held out {values['heldout_loss']:.4f}" if "heldout_loss" in values else ""
    return (
        f"epoch {values['epoch']:.2f}  loss {values['loss']:.4f}  "
        f"perplexity {values['perplexity']:.3g}{held}  {values['tokens_per_s']:.0f} tokens/s"
    )


def perplexity(loss: float) -> float:
    """exp of a mean negative log-likelihood in nats; infinite beyond what a float holds."""
    return math.exp(loss) if not loss > 700.0 else math.inf
