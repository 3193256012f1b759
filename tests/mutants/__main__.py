"""Runs planted bugs: `python -m tests.mutants [--only NAME] [--with tests|simulator|both]`.

Each bug is planted in a copy of the tree and meets the tests that are named for it, or
`bench simulate`. What is known stays in results.json, so an interrupted run goes on where it was.
"""

from __future__ import annotations

import argparse
import shlex
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from queue import Empty, SimpleQueue

from tests.mutants.report import Result, Results, read_results, sums, write_results
from tests.mutants.table import Planted, Table, table
from tests.mutants.tree import Stopped, Tree, copied
from tests.mutants.trial import Caught, against_simulator, against_tests

SIMULATE = "-m bench.cli simulate --mutant-note --jobs 1"


def main(words: Sequence[str] | None = None) -> int:
    """The exit code: 1 where a bug that ran was caught by nothing."""
    options = _parser().parse_args(words)
    known = table()
    chosen = [one for one in known.planted if not options.only or one.name in options.only]
    unknown = sorted({*options.only} - {one.name for one in known.planted})
    if unknown:
        raise SystemExit(f"no mutant is named {' or '.join(unknown)}: see mutants.toml")
    results = read_results(known.planted)
    survived = Runner(options, known, results).run(chosen)
    print("\n".join(sums(results, known.planted)))
    return 1 if survived else 0


class Runner:
    """Workers with a copy each, and the results that they share."""

    def __init__(self, options: argparse.Namespace, known: Table, results: Results) -> None:
        self._options = options
        self._known = known
        self._results = results
        self._lock = threading.Lock()
        self._green: dict[str, bool] = {}
        self._stopped = False
        self._trees: list[Tree] = []

    def run(self, chosen: Sequence[Planted]) -> list[str]:
        """Names of those that nothing caught."""
        queue: SimpleQueue[Planted] = SimpleQueue()
        for mutant in chosen:
            queue.put(mutant)
        with ThreadPoolExecutor(self._options.workers) as pool:
            work = [pool.submit(self._work, queue) for _ in range(self._options.workers)]
            try:
                for one in work:
                    one.result()
            finally:  # also after Ctrl-C: no program outlives this one
                self._stopped = True
                for tree in self._trees:
                    tree.stop()
        return [one.name for one in chosen if not _is_caught(self._results.get(one.name))]

    def _work(self, queue: SimpleQueue[Planted]) -> None:
        with copied() as tree, suppress(Stopped):
            self._trees.append(tree)
            with suppress(Empty):
                while not self._stopped:
                    self._try(tree, queue.get_nowait())

    def _try(self, tree: Tree, mutant: Planted) -> None:
        options, found = self._options, self._results.get(mutant.name, Result())
        before = Caught(by="", seconds=0.0) if options.again else found.tests
        if options.against in ("tests", "both"):
            before = before or Caught(by="", seconds=0.0)
            if not before.by and before.tried < min(options.lists, len(mutant.tests)):
                now = against_tests(
                    tree, mutant, first=before.tried, most=options.lists, green=self._green
                )
                now = replace(now, seconds=before.seconds + now.seconds)
                self._keep(mutant, now, lambda found: replace(found, tests=now))
        again = options.again or found.simulator is None
        if options.against in ("simulator", "both") and mutant.simulated and again:
            seen = against_simulator(
                tree,
                mutant,
                schedules=options.schedules,
                seed=options.seed,
                command=shlex.split(options.simulate),
            )
            self._keep(mutant, seen, lambda found: replace(found, simulator=seen))

    def _keep(self, mutant: Planted, caught: Caught, change: Callable[[Result], Result]) -> None:
        seeds = f", schedule {caught.seeds}" if caught.seeds else ""
        print(
            f"{caught.seconds:6.1f} s  {mutant.name}: {caught.by or 'not caught'}{seeds}",
            flush=True,
        )
        with self._lock:
            self._results[mutant.name] = change(self._results.get(mutant.name, Result()))
            write_results(self._results, self._known.planted, self._known.equivalent)


def _is_caught(result: Result | None) -> bool:
    found = (result.tests, result.simulator) if result is not None else ()
    return any(one is not None and bool(one.by) for one in found)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="mutants to run")
    parser.add_argument(
        "--with", dest="against", choices=("tests", "simulator", "both"), default="tests"
    )
    parser.add_argument(
        "--lists", type=int, default=99, help="try only the first lists of a mutant's tests"
    )
    parser.add_argument("--again", action="store_true", help="run what is known once more")
    parser.add_argument("--workers", type=int, default=1, help="copies that run side by side")
    parser.add_argument("--schedules", type=int, default=300, help="of the simulator, a mutant")
    parser.add_argument("--seed", type=int, default=1, help="the simulator's first seed")
    parser.add_argument("--simulate", default=SIMULATE, help="Python words of the simulator")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
