"""`learner sft`: imitation of a trajectories file, from the newest checkpoint if there is one."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

from learner.config.tables import SftTable
from learner.errors import DataError
from learner.imitation.heldout import Best
from learner.imitation.loop import Imitation, train
from learner.imitation.order import steps_of
from learner.imitation.traces import Trace, Traces, load_traces
from learner.intake.tokenizer_check import TokenizerCheck
from learner.lock import only_learner
from learner.metrics import MetricsLog
from learner.model.policy import Policy, load_policy
from learner.progress import Reporter
from learner.ranks import parallel
from learner.saving.checkpoint import Checkpoints
from learner.stop import Stop
from learner.training.memory import report_memory
from toolwright.recipe import Recipe


def sft(recipe: Recipe, stop: Stop | None = None) -> Path:
    """Trains as the [sft] table says and returns the final Hugging Face folder.

    With held-out traces the weights of their lowest loss are in <run.folder>/sft/best.

    stop: stop requests of the process. A stop finishes the current step, writes a checkpoint and
    raises StoppedError.
    """
    stop = stop or Stop()
    table = recipe.table("sft", SftTable)
    home = recipe.run_folder / "sft"
    final = recipe.resolve(table.output) if table.output is not None else home / "final"
    with (
        parallel.ranks(
            tensor=table.parallel.tensor,
            pipeline=table.parallel.pipeline,
            context=table.parallel.context,
            expert=table.parallel.expert,
            seed=table.seed,
            wait=timedelta(seconds=table.parallel.timeout_s),
        ),
        ExitStack() as on,
    ):
        first = parallel.is_first()
        unlocked: str | None = None
        if first:
            unlocked = on.enter_context(only_learner(home))
            recipe.write_resolved("sft", table)
        source = recipe.resolve(table.model or recipe.shared.policy.model)
        policy = load_policy(
            source,
            table.optimizer,
            table.precision,
            table.lora,
            layout=table.parallel,
            recompute=table.recompute,
            fused=table.fusions,
        )
        tokenizer = TokenizerCheck(source, recipe.shared.policy.template)
        traces, heldout = _data(recipe, table, policy, tokenizer)
        checkpoints = on.enter_context(Checkpoints(home / "checkpoints", table.keep_checkpoints))
        identity = _identity(policy, table, traces, heldout)
        resumed = checkpoints.resume(policy, identity)
        done = int(resumed[0]["step"]) if resumed is not None else 0
        steps = steps_of(table, len(traces.traces))
        report = on.enter_context(Reporter("sft", steps, done, quiet=not first))
        run = Imitation(
            table=table,
            policy=policy,
            traces=traces,
            heldout=heldout,
            checkpoints=checkpoints,
            identity=identity,
            report=report,
            log=on.enter_context(MetricsLog(home, "sft")) if first else None,
            stop=stop,
            best_folder=home / "best",
            best=Best(**resumed[0]["best"]) if resumed is not None else Best(),
        )
        _announce(run, steps - done, source)
        if table.fusions != "off":
            report.say(policy.bridge.fusions.summary)
        for doubt in filter(None, (unlocked, tokenizer.sentence())):
            report.say(doubt)
        train(run, done)
        policy.save(final)
    return final


def _data(
    recipe: Recipe, table: SftTable, policy: Policy, tokenizer: TokenizerCheck
) -> tuple[Traces, tuple[Trace, ...]]:
    """(traces to train on, held-out traces). Raises DataError if one is too long for the policy."""

    def load(path: Path) -> Traces:
        return load_traces(
            recipe.resolve(path),
            int(policy.shape["vocabulary"]),
            tokenizer,
            max_length=table.max_length,
            train_on=table.train_on,
        )

    traces = load(table.data)
    heldout: tuple[Trace, ...] = ()
    if table.heldout.data is not None:
        heldout = load(table.heldout.data).traces
    elif table.heldout.fraction:
        traces, held = traces.split(table.heldout.fraction, table.seed)
        heldout = held.traces
    context = int(policy.bridge.hf_config.max_position_embeddings)
    longest = max(row.length for trace in (*traces.traces, *heldout) for row in trace.rows)
    if longest > context:
        raise DataError(
            f"the longest trace has {longest} tokens and the policy reads {context}: set "
            f"sft.max_length = {context}, which drops and counts longer traces"
        )
    return traces, heldout


def _announce(run: Imitation, steps: int, source: Path) -> None:
    """Reports the data, the number of steps and a possible lack of memory, in the first lines."""
    dropped = run.traces.too_long
    also = f", {dropped} longer than {run.table.max_length} tokens were dropped" if dropped else ""
    held = f", {len(run.heldout)} held out" if run.heldout else ""
    run.report.say(
        f"{len(run.traces.traces)} traces{held}{also}; {steps} steps to go from {source}"
    )
    longest = max(row.length for trace in run.traces.traces for row in trace.rows)
    key = (longest, "sft.max_length")
    report_memory(run.policy, run.table, key, run.report.say, name="sft")


def _identity(
    policy: Policy, table: SftTable, traces: Traces, heldout: tuple[Trace, ...]
) -> dict[str, Any]:
    return {
        "kind": "sft",
        "model": policy.shape,
        "optimizer": table.optimizer.kind,
        "precision": table.precision,
        "seed": table.seed,
        "batch_size": table.batch_size,
        "max_length": table.max_length,
        "train_on": table.train_on,
        "heldout": table.heldout.fraction,
        "traces": len(traces.traces),
        "data": traces.digest(),
        "heldout_data": Traces(traces=heldout).digest(),
    }
