"""Tables of studies as Markdown. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from toolwright.statistics import mean_of


def over_seeds(
    values: Iterable[float | None], errors: Iterable[float | None] = ()
) -> tuple[float, float | None] | None:
    """(mean over seeds, its standard error); None without a value. errors: of the single values;
    one seed has its own."""
    found = mean_of(value for value in values if value is not None)
    if found is None:
        return None
    own = [error for error in errors if error is not None]
    return found.mean, own[0] if found.n == 1 and own else found.stderr


def cell(values: Iterable[float | None], errors: Iterable[float | None] = ()) -> str:
    """`over_seeds` as text; "-" without a value."""
    found = over_seeds(values, errors)
    if found is None:
        return "-"
    mean, error = found
    return f"{mean:.3f}" if error is None else f"{mean:.3f} ±{error:.3f}"


def markdown(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table with a head."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
