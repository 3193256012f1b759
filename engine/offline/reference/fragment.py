"""A comparison as blocks of a page (`toolwright.page.document`)."""

from __future__ import annotations

from engine.offline.reference.comparing import BOUND, Comparison
from engine.offline.reference.showing import columns, differences, has_ours, notes, values
from toolwright.page.document import Block, Cell, heading, note, table


def blocks(comparison: Comparison) -> list[Block | None]:
    """A heading, the table with ours in bold, and ours minus theirs."""
    heads = columns(comparison)
    rows: list[list[Cell]] = []
    for line in comparison.lines:
        cells = [line.system, line.model, *values(comparison, line)]
        rows.append([{"bold": one} for one in cells] if line.own else [*cells])
    found = [
        heading(f"{comparison.paper.name}:{comparison.table.id}"),
        note(comparison.table.title),
        table(["system", "model", *heads], rows),
    ]
    if has_ours(comparison):
        minus = [
            [line.system, line.model, *differences(comparison, line)]
            for line in comparison.lines
            if not line.own
        ]
        found += [
            note(f"Ours minus theirs; a star marks more than {BOUND} standard errors."),
            table(["system", "model", *heads[:-1]], minus),
        ]
    return [*found, *map(note, notes(comparison))]
