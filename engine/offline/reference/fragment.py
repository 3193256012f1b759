"""A comparison as a piece of HTML, for a page with the style sheet of `toolwright.page`."""

from __future__ import annotations

from engine.offline.reference.comparing import BOUND, Comparison
from engine.offline.reference.showing import columns, differences, has_ours, notes, values
from toolwright.page.pages import render
from toolwright.page.text import fit


def html(comparison: Comparison) -> str:
    """A <section>. All text is escaped and valid in XML."""
    paper, table, lines = comparison.paper, comparison.table, comparison.lines
    heads = columns(comparison)
    rows = [
        {"names": _fit([line.system, line.model]), "cells": values(comparison, line)}
        | {"main": line.own}
        for line in lines
    ]
    minus = [
        {"names": _fit([line.system, line.model]), "cells": differences(comparison, line)}
        for line in lines
        if not line.own
    ]
    return render(
        "engine.offline.reference",
        "against.html.jinja",
        {
            "title": f"{paper.name}:{table.id}",
            "about": fit(table.title),
            "heads": heads,
            "rows": rows,
            "minus": minus if has_ours(comparison) else [],
            "bound": BOUND,
            "notes": _fit(notes(comparison)),
        },
    )


def _fit(texts: list[str]) -> list[str]:
    return [fit(text) for text in texts]
