"""`learner run`: trains until run.steps, from the newest checkpoint if there is one."""

from __future__ import annotations

import contextlib
import time
from datetime import timedelta
from pathlib import Path

from learner.config.tables import LearnerTable
from learner.errors import EngineError, GroupError, PortError
from learner.intake.client import PUBLISH_S, EngineClient, lease_deadline
from learner.intake.prefetch import Prefetch
from learner.lock import only_learner
from learner.loop.gauges import LoopGauges
from learner.loop.handover import finish_save, return_memory, save
from learner.loop.start import restore, start
from learner.loop.state import Run
from learner.loop.step import step
from learner.loop.teachers import load_teachers
from learner.loop.traces import step_traces
from learner.metrics import MetricsLog, earlier_steps
from learner.model.policy import load_frozen, load_policy
from learner.progress import Reporter
from learner.ranks import parallel
from learner.saving import group
from learner.saving.broadcast import BroadcastPublisher
from learner.saving.checkpoint import Checkpoints
from learner.saving.folder_writer import FolderWriter
from learner.stop import Stop
from learner.training.memory import report_memory
from learner.training.probe import Probe
from toolwright.model.beginning import first_policy
from toolwright.process.metrics_page import port_fault, threaded_page
from toolwright.recipe import Recipe

STALE_CACHE_WARNING = (
    "the vision tower is trained: start SGLang with SGLANG_VLM_CACHE_SIZE_MB=0, or it reuses image "
    "embeddings of older towers, which gap_max shows"
)


def run(recipe: Recipe, stop: Stop | None = None) -> Path:
    """Trains until run.steps and returns the final Hugging Face folder.

    stop: stop requests of the process. A stop lets the current step finish, or drops it if its
    groups have not arrived. Then a checkpoint is written, and StoppedError is raised. All ranks
    stop at the same step, whichever of them got the signal.
    """
    stop = stop or Stop()
    table = recipe.table("learner", LearnerTable)
    recipe = recipe.counted()
    shared = recipe.shared
    final = recipe.run_folder / "final"
    if table.publish.way == "group":
        unreachable = table.publish.beyond(shared.sampler.endpoints)
        if unreachable is not None:
            raise GroupError(unreachable)
        if shared.run.share_gpu:
            raise GroupError(
                'learner.publish.way = "group" with run.share_gpu = true: NCCL joins no two '
                'processes on one GPU; set learner.publish.way = "folder"'
            )
        group.prepare()
    with (
        parallel.ranks(
            tensor=table.parallel.tensor,
            pipeline=table.parallel.pipeline,
            context=table.parallel.context,
            expert=table.parallel.expert,
            seed=shared.run.seed,
            wait=longest_alone(table, shared.run.groups_per_step),
        ),
        contextlib.ExitStack() as held,
    ):
        first = parallel.is_first()
        unlocked: str | None = None
        if first:
            unlocked = held.enter_context(only_learner(recipe.run_folder))
            recipe.write_resolved("learner", table)
        source = first_policy(recipe)
        policy = load_policy(
            source,
            table.optimizer,
            table.precision,
            table.lora,
            layout=table.parallel,
            recompute=table.recompute,
            fused=table.fusions,
            vision=table.vision,
        )
        reference = None
        if table.kl.coefficient > 0:
            reference = policy.starting_model() or load_frozen(source, table.precision)
        checkpoints = held.enter_context(
            Checkpoints(recipe.run_folder / "checkpoints", table.keep_checkpoints)
        )
        version, ledger, resumed = restore(recipe, table, policy, checkpoints)
        with contextlib.ExitStack() as stack:
            report = stack.enter_context(
                Reporter("step", recipe.steps, version.step, quiet=not first)
            )
            state = Run(
                recipe=recipe,
                table=table,
                policy=policy,
                reference=reference,
                teachers=load_teachers(recipe, table, policy, report.say),
                version=version,
                ledger=ledger,
                checkpoints=checkpoints,
                probe=Probe(
                    rows=table.probe_rows,
                    budget=table.tokens_per_microbatch,
                    temperature=shared.sampler.temperature,
                    source=source,
                    policies=recipe.run_folder / "policy",
                ),
                report=report,
                stop=stop,
                published_folder=source,
                saved=version.step if resumed else -1,
            )
            if first:
                state.client = stack.enter_context(
                    EngineClient(
                        shared.run.engine,
                        patience=table.engine_patience_s,
                        say=report.say,
                        stopping=lambda: stop.requested is not None,
                    )
                )
                if table.prefetch and shared.run.max_staleness > 0:
                    state.prefetch = Prefetch(state.client)
                state.collapse.remember(earlier_steps(recipe.run_folder, version.step))
                state.log = stack.enter_context(MetricsLog(recipe.run_folder, "learner"))
                if table.metrics_port:
                    state.gauges = LoopGauges(max_staleness=shared.run.max_staleness)
                    serve_metrics(stack, state.gauges, table.metrics_port)
            if table.publish.way == "group":
                state.broadcast = BroadcastPublisher(
                    table.publish,
                    state.policies,
                    kept=table.keep_policies,
                    say=report.say,
                    client=state.client,
                    folders=stack.enter_context(FolderWriter()),
                )
            if unlocked is not None:
                report.say(unlocked)
            if table.vision == "trained":
                report.say(STALE_CACHE_WARNING)
            if table.fusions != "off":
                report.say(policy.bridge.fusions.summary)
            longest = table.longest_row(recipe.shared)
            report_memory(state.policy, table, longest, report.say, name="learner")
            start(state, resumed=resumed)
            if state.client is not None:
                begin_traces(stack, state, state.client)
            stop.begin_saving()
            try:
                stopped = train(state)
            except BaseException as error:
                return_memory(state, error)
                if stop.requested is None or not isinstance(error, EngineError):
                    raise
                if state.saving is not None:
                    # Not `finish_save`: the other ranks wait for what the engine did not answer.
                    checkpoints.wait()
                    state.saved = state.saving.step
                raise stop.error(max(state.saved, 0), f" ({error})") from error
            if stopped:
                raise stop.error(state.version.step)
            policy.save(final)
    return final


def train(run: Run) -> bool:
    """Trains to the last step and writes its checkpoint. True if a stop came first."""
    run.marked = time.monotonic()
    steps = run.recipe.steps
    while run.version.step < steps and not parallel.on_any(run.stop.requested is not None):
        if not step(run):
            break
    stopped = run.version.step < steps
    begun = run.version.step > 0 or not stopped
    finish_save(run)
    if begun and run.saved != run.version.step:
        save(run)
        finish_save(run)
    run.publisher.settle()
    return stopped


def begin_traces(stack: contextlib.ExitStack, run: Run, client: EngineClient) -> None:
    """Sends traces of steps while the stack is open, if the run has a collector.

    Raises CollectorError if the collector is not an address.
    """
    run.traces = step_traces(lambda: client.state().run, run.recipe.shared.run.traces)
    if run.traces is not None:
        stack.callback(run.traces.close)
        if run.gauges is not None:
            run.gauges.registry.register(run.traces.exporter)


def serve_metrics(stack: contextlib.ExitStack, gauges: LoopGauges, port: int) -> None:
    """Serves the page for Prometheus while the stack is open. Raises PortError if it cannot."""
    try:
        stack.enter_context(threaded_page(gauges.registry, port))
    except OSError as error:
        raise PortError(port_fault("learner.metrics_port", port)) from error


def longest_alone(table: LearnerTable, groups: int) -> timedelta:
    """Longest time that rank 0 may keep the others waiting: one engine call with its retries."""
    seconds = max(PUBLISH_S, lease_deadline(table.lease_wait_s, groups)) + table.engine_patience_s
    return timedelta(seconds=table.parallel.timeout_s + seconds)
