"""What people and programs are told of a collection: progress, what each criterion yields, the
end."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from engine.offline.collect.budget import Prices, seconds_to_go
from engine.offline.collect.choice import Totals, Verdict
from engine.offline.collect.collector import Collector
from engine.offline.collect.store import Store
from engine.offline.progress import duration
from engine.offline.text_table import aligned

FORMAT = 1
"""Of OUTPUT.yield.json."""


class Told:
    """What people and programs are told of a collection, from the counts of its store."""

    def __init__(
        self,
        store: Store,
        collector: Collector,
        criteria: Mapping[str, str],
        prices: Prices,
        failures: Mapping[str, int],
    ) -> None:
        """criteria: paths by name. failures: of the reward function in this life, by cause."""
        self._store = store
        self._collector = collector
        self._criteria = criteria
        self._prices = prices
        self._failures = failures
        self._then = collector.begun

    def beginning(self) -> str:
        return f"{self._collector.total} tasks, {self._store.totals.tasks} done before"

    def line(self) -> str:
        """How far it is, what it yields and has cost, and how long it will take."""
        store, collector = self._store, self._collector
        totals, now = store.totals, collector.spent
        seconds = now.seconds - self._then.seconds
        rate = (now.tokens - self._then.tokens) / seconds if seconds > 0 else 0.0
        self._then = now
        cost = self._prices.cost(totals.read, totals.written)
        left = seconds_to_go(now, collector.begun, collector.total, collector.budget)
        parts = [
            f"[{now.seconds - collector.begun.seconds:6.0f} s] "
            f"{totals.tasks}/{collector.total} tasks",
            yield_so_far(totals, tuple(self._criteria)),
            "disk full, waiting" if store.full else f"{collector.in_flight} in flight",
            f"{totals.written:,} tokens at {rate:,.0f}/s",
            "" if cost is None else f"cost {cost:.4g}",
            "" if left is None else f"{duration(left)} left",
        ]
        return ", ".join(part for part in parts if part)

    def keep_yield(self) -> None:
        """OUTPUT.yield.json as of now. Where there is no room for it, the next one tells more."""
        found = as_json(
            self._store.totals,
            self._criteria,
            self._prices,
            tasks=self._collector.total,
            ended_by=self._collector.ended_by,
        )
        with contextlib.suppress(OSError):
            self._store.tell_yield(orjson.dumps(found, option=orjson.OPT_INDENT_2) + b"\n")

    def summary(self) -> str:
        """What became of everything, for people."""
        collector, totals = self._collector, self._store.totals
        counts = dict(totals.verdicts)
        words = [f"{counts.pop('kept', 0)} kept"]
        words += [f"{count} {name.replace('_', ' ')}" for name, count in sorted(counts.items())]
        words.append("1 bad row" if totals.bad_rows == 1 else f"{totals.bad_rows} bad rows")
        lines = [f"{totals.tasks} of {collector.total} tasks: {', '.join(words)}"]
        if collector.ended_by:
            lines.append(f"ended by {collector.ended_by}: the same command with more goes on")
        if totals.last_bad:
            lines.append(f"the last bad row: {totals.last_bad}")
        lines += table(totals, tuple(self._criteria))
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
            reasons = store.totals.untold.get(layout, Counter[str]())
            if missing := reasons.total():
                why = ", ".join(f"{count} {one}" for one, count in reasons.most_common())
                name += f" without {missing} that messages cannot tell: {why}"
            yield name


def as_json(
    totals: Totals, criteria: Mapping[str, str], prices: Prices, *, tasks: int, ended_by: str
) -> dict[str, Any]:
    """What OUTPUT.yield.json holds. criteria: paths by name. tasks: of the plan. ended_by: the
    budget that was spent."""
    verdicts = totals.verdicts
    return {
        "format": FORMAT,
        "complete": totals.tasks >= tasks,
        "ended_by": ended_by or None,
        "tasks": {"planned": tasks, "decided": totals.tasks, "bad_rows": totals.bad_rows},
        "rolled_out": totals.rolled_out,
        "infrastructure": verdicts[Verdict.ERRORED],
        "reward_failed": verdicts[Verdict.REWARD_FAILED],
        "masked": verdicts[Verdict.MASKED],
        "criteria": [
            {
                "name": name,
                "function": path,
                "refused_first": totals.refused_first[name],
                "refused": totals.refused[name],
                "refused_alone": totals.refused_alone[name],
            }
            for name, path in criteria.items()
        ],
        "duplicates": verdicts[Verdict.DUPLICATE],
        "over_the_cap": verdicts[Verdict.OVER_CAP],
        "kept": totals.kept,
        "not_exported": {layout: dict(found) for layout, found in totals.untold.items()},
        "tokens": {"read": totals.read, "written": totals.written},
        "seconds": round(totals.seconds, 1),
        "prices": {"read": prices.read, "written": prices.written} if prices.known else None,
        "cost": prices.cost(totals.read, totals.written),
    }


def table(totals: Totals, criteria: Sequence[str]) -> list[str]:
    """The yield as lines for people: the first column of numbers adds up to what was rolled out."""
    verdicts, whole = totals.verdicts, totals.rolled_out
    if not whole:
        return []

    def line(name: str, count: int, *rest: int) -> list[str]:
        cells = [f"{one:,}" for one in rest] or ["", ""]
        return [name, f"{count:,}", f"{count / whole:.1%}", *cells]

    rows = [["", "first", "share", "refused", "alone"], line("rolled out", whole)]
    rows.append(line("infrastructure", verdicts[Verdict.ERRORED]))
    rows.append(line("reward failed", verdicts[Verdict.REWARD_FAILED]))
    rows.append(line("masked", verdicts[Verdict.MASKED]))
    rows += [
        line(name, totals.refused_first[name], totals.refused[name], totals.refused_alone[name])
        for name in criteria
    ]
    rows.append(line("duplicates", verdicts[Verdict.DUPLICATE]))
    rows.append(line("over the cap", verdicts[Verdict.OVER_CAP]))
    rows.append(line("kept", totals.kept))
    return list(aligned(rows, right=range(1, 5)))


def yield_so_far(totals: Totals, criteria: Sequence[str]) -> str:
    """For one line of progress."""
    whole = totals.rolled_out
    if not whole:
        return "0 kept"
    parts = [f"{totals.kept:,} of {whole:,} kept ({totals.kept / whole:.0%})"]
    parts += [
        f"refused by {name} {totals.refused[name]:,} ({totals.refused_alone[name]:,} alone)"
        for name in criteria
    ]
    others = (
        (Verdict.DUPLICATE, "duplicates"),
        (Verdict.OVER_CAP, "over the cap"),
        (Verdict.REWARD_FAILED, "reward failed"),
        (Verdict.MASKED, "masked"),
        (Verdict.ERRORED, "infrastructure"),
    )
    parts += [f"{words} {totals.verdicts[one]:,}" for one, words in others if totals.verdicts[one]]
    return ", ".join(parts)
