"""`bench simulate`: many schedules of the engine on a virtual clock, judged one by one."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from bench.simulate.campaign import Totals
    from bench.simulate.schedule import PlannedFault, Schedule
    from bench.simulate.verdict import Failure

SAY_S = 5.0
"""Between progress lines."""


def simulate(
    schedules: Annotated[int, typer.Option(help="Schedules to play.", min=1)] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of the first one; the next has one more.")] = 0,
    jobs: Annotated[int, typer.Option(help="Processes that play.", min=1)] = 2,
    workers: Annotated[
        int, typer.Option(help="Workers of the engine, with faults of their own.", min=0)
    ] = 0,
    only: Annotated[
        int | None, typer.Option(metavar="SEED", help="Play this one schedule and print it.")
    ] = None,
    faults: Annotated[
        str | None,
        typer.Option(
            metavar="N,N",
            help='Only with --only. Numbers of the faults to keep, from 0; "" = none of them.',
        ),
    ] = None,
    history: Annotated[
        Path | None,
        typer.Option(
            help="Only with --only. Write the events there, for `python -m bench.history`."
        ),
    ] = None,
    log: Annotated[bool, typer.Option(help="Only with --only. Print the engine's log.")] = False,
    mutant_note: Annotated[
        bool,
        typer.Option(
            help="Stop at the first failure and print one line: after how many schedules, which "
            "invariant, which seed. For planted bugs."
        ),
    ] = False,
) -> None:
    """Play runs of the real engine on a virtual clock, with seeded faults.

    Each schedule is a whole run drawn from its seed: a workload and its faults.
    Faults kill the engine, the tool host or the learner. They cut streams, slow or
    kill samplers, fill the disk and lose leases. Engine, journal and tool host are
    the real ones. Samplers are scripted and draw a new answer for each request.
    The validator of `bench.history` judges what the neighbours saw. A minute of a
    run takes some hundredths of a second.

    A failure prints its seed, the promise that is broken, the events around it,
    the faults that it takes, and the command that plays it again; the exit code
    is 1 then. Equal seeds give equal digests, in every process.

    Examples:
        bench simulate
        bench simulate --schedules 5000 --jobs 2
        bench simulate --workers 2
        bench simulate --only 57
        bench simulate --only 57 --faults 1,4 --log
    """
    if history is not None and (history.is_dir() or not history.parent.is_dir()):
        raise typer.BadParameter(f"--history {history}: name a file in a folder that is there")
    if only is not None:
        raise typer.Exit(_play_one(only, workers, faults, history=history, log=log))
    if faults is not None or history is not None or log:
        raise typer.BadParameter("--faults, --history and --log need --only SEED")
    raise typer.Exit(_play_many(range(seed, seed + schedules), jobs, workers, note=mutant_note))


def _play_many(seeds: range, jobs: int, workers: int, *, note: bool) -> int:
    from contextlib import closing

    from bench.simulate.campaign import Totals, results

    totals, began, said = Totals(), time.monotonic(), time.monotonic()
    with closing(results(seeds, jobs=jobs, workers=workers, shrink=not note)) as every:
        for result in every:
            totals.add(result)
            failure = result.failure
            if failure is not None and note:
                number = result.seed - seeds.start + 1
                print(f"found after {number} schedules: {failure.invariant} (seed {result.seed})")
                return 1
            if failure is not None:
                print(report(result.seed, failure, workers), flush=True)
            if time.monotonic() - said > SAY_S:
                said = time.monotonic()
                print(_progress(totals, len(seeds), said - began), file=sys.stderr, flush=True)
    if note:
        print(f"not found in {totals.schedules} schedules")
        return 0
    print(_summary(totals, time.monotonic() - began))
    return 1 if totals.failures else 0


def _play_one(seed: int, workers: int, keep: str | None, *, history: Path | None, log: bool) -> int:
    import os

    from bench.simulate.campaign import HASH_SEED

    if os.environ.get(HASH_SEED) != "0":  # sets of words iterate by it
        os.environ[HASH_SEED] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "bench.cli", *sys.argv[1:]])
    from bench.history.stored import write_history
    from bench.simulate.playing.play import studio
    from bench.simulate.schedule import schedule_of
    from bench.simulate.verdict import outcome, shortest

    whole = schedule_of(seed, workers)
    schedule = whole if keep is None else whole.with_faults(_kept(whole.faults, keep))
    print(f"seed {seed}: {schedule.workload}")
    print("\n".join(_numbered(whole, schedule.faults)) or "  no faults")
    with studio() as place:
        found = outcome(place, schedule, _say if log else None)
        failure = found.failure
        played = found.played
        if history is not None and played is not None:
            write_history(history, played.history)
        if played is not None:
            for note in played.notes:
                print(f"  note: {note}")
            print(f"{played.seconds:.1f} virtual seconds, digest {played.digest}")
        if failure is None:
            print("every promise is kept")
            return 0
        short = shortest(place, schedule, failure.invariant) if schedule.faults else ()
    print(failure.text)
    print("\n".join(("it takes these faults:", *(_numbered(whole, short) or ["  none"]))))
    return 1


def _say(at: float, event: str, fields: dict[str, Any]) -> None:
    words = " ".join(f"{name}={value}" for name, value in fields.items())
    print(f"  {at:9.4f} {event} {words}")


def _kept(faults: tuple[PlannedFault, ...], numbers: str) -> tuple[PlannedFault, ...]:
    try:
        return tuple(faults[int(number)] for number in numbers.split(",") if number.strip())
    except (ValueError, IndexError):
        raise typer.BadParameter(
            f"--faults {numbers}: "
            + (
                f"the schedule has faults 0 to {len(faults) - 1}; name some of them as 0,2"
                if faults
                else "the schedule has no faults"
            )
        ) from None


def _numbered(schedule: Schedule, faults: Iterable[PlannedFault]) -> list[str]:
    return [f"  {schedule.faults.index(fault)}: {fault}" for fault in faults]


def report(seed: int, failure: Failure, workers: int = 0) -> str:
    """A failure for people: the promise, the events around it, its faults, how to play it again."""
    from bench.simulate.schedule import schedule_of

    schedule = schedule_of(seed, workers)
    of = f" --workers {workers}" if workers else ""
    short = failure.faults if failure.shrunken is None else failure.shrunken
    numbers = ",".join(str(schedule.faults.index(fault)) for fault in short)
    return "\n".join(
        (
            f"seed {seed}: {failure.text}",
            f"  it takes {len(short)} of {len(failure.faults)} faults:",
            *_numbered(schedule, short),
            f"  play it again: bench simulate --only {seed}{of} --faults '{numbers}'",
        )
    )


def _progress(totals: Totals, wanted: int, seconds: float) -> str:
    return (
        f"[{seconds:5.0f} s] {totals.schedules} of {wanted} schedules, "
        f"{totals.counts['Offered']} groups offered, {totals.counts['PlannedFault']} faults, "
        f"{len(totals.failures)} failures"
    )


def _summary(totals: Totals, seconds: float) -> str:
    counts = totals.counts
    hurt = ", ".join(
        f"{name.removeprefix('fault ')} {count}"
        for name, count in counts.most_common()
        if name.startswith("fault ")
    )
    fates = ", ".join(
        f"{name.removeprefix('group ')} {count}"
        for name, count in counts.most_common()
        if name.startswith("group ")
    )
    return "\n".join(
        (
            f"{totals.schedules} schedules, {totals.virtual_s / 3600:.1f} virtual hours, "
            f"{totals.cpu_s / totals.schedules:.3f} CPU-seconds each, {seconds:.0f} s in all",
            f"lives of the engine: {counts['LifeBegan']}, {counts['kill']} killed",
            f"faults: {hurt or 'none'}",
            f"groups: {fates or 'none'}; {counts['Offered']} offers, "
            f"{counts['Trained']} steps, {counts['Restored']} restores",
            f"requests {counts['Sampled']}, calls {counts['Dispatched']}, "
            f"effects {counts['Effect']}, sessions {counts['SessionOpened']}, "
            f"evaluations {counts['Evaluated']}",
            f"failures: {len(totals.failures)}",
            f"digest {totals.digest}",
        )
    )
