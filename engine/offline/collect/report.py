"""The progress and the results of a collection, for users and programs."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from engine.offline.collect.budget import seconds_remaining
from engine.offline.collect.collector import Collector
from engine.offline.collect.selection import SelectionOutcome, Totals
from engine.offline.collect.store import Store
from engine.offline.output_files import write_whole
from engine.offline.prices import Prices
from engine.offline.progress import duration
from engine.offline.text_table import aligned

FORMAT = 1
"""Format version of OUTPUT.yield.json."""


class CollectionReport:
    """Reports on a collection, made from the counts of its store."""

    def __init__(
        self,
        store: Store,
        collector: Collector,
        criteria: Mapping[str, str],
        prices: Prices,
        failures: Mapping[str, int],
    ) -> None:
        """criteria: paths by name. failures: of the reward function in this process, by cause."""
        self._store = store
        self._collector = collector
        self._criteria = criteria
        self._prices = prices
        self._failures = failures

    @property
    def done(self) -> int:
        """Number of decided tasks."""
        return self._store.totals.tasks

    def progress(self) -> list[str]:
        """Parts of a progress line: yield, tokens, cost and the time that is left."""
        store, collector = self._store, self._collector
        totals, now = store.totals, collector.spent
        seconds = now.seconds - collector.spent_before.seconds
        rate = (now.tokens - collector.spent_before.tokens) / seconds if seconds > 0 else 0.0
        cost = self._prices.cost(totals.read, totals.written)
        left = seconds_remaining(now, collector.spent_before, collector.total, collector.budget)
        return [
            yield_so_far(totals, tuple(self._criteria)),
            "disk full, waiting" if store.full else f"{collector.in_flight} in flight",
            f"{totals.written:,} tokens at {rate:,.0f}/s",
            "" if cost is None else f"cost {cost:.4g}",
            "" if left is None else f"{duration(left)} left",
        ]

    def write_yield(self) -> None:
        """Writes OUTPUT.yield.json. On a full disk it is left out until the next time."""
        found = as_json(
            self._store.totals,
            self._criteria,
            self._prices,
            tasks=self._collector.total,
            ended_by=self._collector.ended_by,
        )
        data = orjson.dumps(found, option=orjson.OPT_INDENT_2) + b"\n"
        with contextlib.suppress(OSError):
            write_whole(self._store.yield_file, data, durable=False)

    def summary(self) -> str:
        """The final lines for users."""
        collector, totals = self._collector, self._store.totals
        counts = dict(totals.outcomes)
        words = [f"{counts.pop('kept', 0)} kept"]
        words += [f"{count} {name.replace('_', ' ')}" for name, count in sorted(counts.items())]
        words.append("1 bad row" if totals.bad_rows == 1 else f"{totals.bad_rows} bad rows")
        lines = [f"{totals.tasks} of {collector.total} tasks: {', '.join(words)}"]
        if collector.ended_by:
            lines.append(
                f"ended by {collector.ended_by}: the same command with a larger budget goes on"
            )
        if totals.last_bad:
            lines.append(f"the last bad row: {totals.last_bad}")
        lines += table(totals, tuple(self._criteria))
        lines += [
            f"refused by {name}, for example: {totals.examples[name]}"
            for name in self._criteria
            if name in totals.examples
        ]
        lines += [
            f"the reward failed for {count:,} trajectories: {cause}"
            for cause, count in Counter(self._failures).most_common()
        ]
        lines.append(self._spent())
        return "\n".join([*lines, *self._files()])

    def _spent(self) -> str:
        totals = self._store.totals
        cost = self._prices.cost(totals.read, totals.written)
        parts = [f"{totals.written:,} tokens written", f"{totals.read:,} read"]
        parts += [] if cost is None else [f"cost {cost:.4g}"]
        return ", ".join([*parts, f"{duration(totals.seconds)} of rolling out"])

    def _files(self) -> Iterator[str]:
        store = self._store
        for place, file in enumerate(store.shards.files(0)):
            if store.shards.size is not None:
                suffix = file.name.removeprefix(file.stem.partition(".")[0])
                name = f"{store.output}/*{suffix}, {store.files} files"
            else:
                name = str(file)
            layout = store.layouts[place - 1] if place else ""
            reasons = store.totals.not_exported.get(layout, Counter[str]())
            if missing := reasons.total():
                why = ", ".join(f"{count} {one}" for one, count in reasons.most_common())
                name += f" without {missing} that chat messages cannot hold: {why}"
            yield name


def as_json(
    totals: Totals, criteria: Mapping[str, str], prices: Prices, *, tasks: int, ended_by: str
) -> dict[str, Any]:
    """The content of OUTPUT.yield.json.

    criteria: paths by name. tasks: number planned. ended_by: the budget that was spent.
    """
    outcomes = totals.outcomes
    return {
        "format": FORMAT,
        "complete": totals.tasks >= tasks,
        "ended_by": ended_by or None,
        "tasks": {"planned": tasks, "decided": totals.tasks, "bad_rows": totals.bad_rows},
        "rolled_out": totals.rolled_out,
        "infrastructure": outcomes[SelectionOutcome.ERRORED],
        "reward_failed": outcomes[SelectionOutcome.REWARD_FAILED],
        "masked": outcomes[SelectionOutcome.MASKED],
        "criteria": [
            {
                "name": name,
                "function": path,
                "refused_first": totals.refused_first[name],
                "refused": totals.refused[name],
                "refused_alone": totals.refused_alone[name],
                "example": totals.examples.get(name),
            }
            for name, path in criteria.items()
        ],
        "duplicates": outcomes[SelectionOutcome.DUPLICATE],
        "over_the_cap": outcomes[SelectionOutcome.OVER_CAP],
        "kept": totals.kept,
        "not_exported": {layout: dict(found) for layout, found in totals.not_exported.items()},
        "tokens": {"read": totals.read, "written": totals.written},
        "seconds": round(totals.seconds, 1),
        "prices": {"read": prices.read, "written": prices.written} if prices.known else None,
        "cost": prices.cost(totals.read, totals.written),
    }


def table(totals: Totals, criteria: Sequence[str]) -> list[str]:
    """The yield as lines for users; the first column adds up to the number of rolled-out ones."""
    outcomes, whole = totals.outcomes, totals.rolled_out
    if not whole:
        return []

    def line(name: str, count: int, *rest: int) -> list[str]:
        cells = [f"{one:,}" for one in rest] or ["", ""]
        return [name, f"{count:,}", f"{count / whole:.1%}", *cells]

    rows = [["", "first", "share", "refused", "alone"], line("rolled out", whole)]
    rows.append(line("infrastructure", outcomes[SelectionOutcome.ERRORED]))
    rows.append(line("reward failed", outcomes[SelectionOutcome.REWARD_FAILED]))
    rows.append(line("masked", outcomes[SelectionOutcome.MASKED]))
    rows += [
        line(name, totals.refused_first[name], totals.refused[name], totals.refused_alone[name])
        for name in criteria
    ]
    rows.append(line("duplicates", outcomes[SelectionOutcome.DUPLICATE]))
    rows.append(line("over the cap", outcomes[SelectionOutcome.OVER_CAP]))
    rows.append(line("kept", totals.kept))
    return list(aligned(rows, right=range(1, 5)))


def yield_so_far(totals: Totals, criteria: Sequence[str]) -> str:
    """The yield, for a line of progress."""
    whole = totals.rolled_out
    if not whole:
        return "0 kept"
    parts = [f"{totals.kept:,} of {whole:,} kept ({totals.kept / whole:.0%})"]
    parts += [
        f"refused by {name} {totals.refused[name]:,} ({totals.refused_alone[name]:,} alone)"
        for name in criteria
    ]
    others = (
        (SelectionOutcome.DUPLICATE, "duplicates"),
        (SelectionOutcome.OVER_CAP, "over the cap"),
        (SelectionOutcome.REWARD_FAILED, "reward failed"),
        (SelectionOutcome.MASKED, "masked"),
        (SelectionOutcome.ERRORED, "infrastructure"),
    )
    parts += [f"{words} {totals.outcomes[one]:,}" for one, words in others if totals.outcomes[one]]
    return ", ".join(parts)
