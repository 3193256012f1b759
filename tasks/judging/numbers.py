"""Answers of mathematics compared without a computer algebra: as numbers, then as texts. Pure.

Two numbers are one when they differ by at most a ten-thousandth of the larger; texts when nothing
but case, blanks, dollar signs and the ways to write one thing in LaTeX tell them apart. So "1/2"
and "\\frac{1}{2}" are one, and "x+1" and "1+x" are two: `symbols` knows better.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

CLOSE = 1e-4
"""Relative (the released reward of SEARL, envs/reward_utils.py)."""
LONGEST = 1000
"""Characters of an answer that are looked at. A longer one is no number, and never written twice
in the same way."""

_PLAIN = re.compile(
    r"[-+]?(?=\.?[0-9])(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)?(?:\.[0-9]*)?(?:[eE][-+]?[0-9]{1,3})?"
)
_FRACTION = re.compile(r"([-+]?)\\?[dt]?frac\{([-+]?[\d.]+)\}\{([-+]?[\d.]+)\}")
_SLASH = re.compile(r"([-+]?)([\d.,]+)/([\d.,]+)")
_SAME = (
    ("\\left", ""), ("\\right", ""), ("\\!", ""), ("\\,", ""), ("\\;", ""), ("\\ ", ""),
    ("\\$", ""), ("$", ""), ("\\%", "%"), ("dfrac", "frac"), ("tfrac", "frac"),
    ("^\\circ", ""), ("^{\\circ}", ""), ("°", ""),
    ("\u2212", "-"), ("\\cdot", "*"), ("\u00d7", "*"),
)  # fmt: skip
_WRAPPED = re.compile(r"\\(?:text|mathrm|textbf|mathbf)\{([^{}]{0,100})\}")


def same_number_or_text(answer: str, golds: Iterable[str]) -> bool:
    """Whether an answer is one of the right ones."""
    return any(_same(answer, gold) for gold in golds)


def number_of(text: str) -> float | None:
    """The number that a text is: digits, with thousands' commas, a per cent sign, a fraction; None
    for all else, infinite numbers among it. "50%" is 50: a set that means 0.5 writes that."""
    text = _normal(text).removesuffix("%")
    for pattern in (_FRACTION, _SLASH):
        if parts := pattern.fullmatch(text):
            above, below = _plain(parts[2]), _plain(parts[3])
            if above is None or not below:
                return None
            return -above / below if parts[1] == "-" else above / below
    return _plain(text)


def close(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=CLOSE, abs_tol=1e-12)


def _same(answer: str, gold: str) -> bool:
    if len(answer) > LONGEST or len(gold) > LONGEST:
        return False
    one, other = number_of(answer), number_of(gold)
    if one is not None and other is not None:
        return close(one, other)
    text = _normal(gold)
    return bool(text) and _normal(answer) == text


def _plain(text: str) -> float | None:
    if not _PLAIN.fullmatch(text):
        return None
    value = float(text.replace(",", ""))
    return value if math.isfinite(value) else None


def _normal(text: str) -> str:
    text = text[: LONGEST + 1].strip().rstrip(".")
    for found, instead in _SAME:
        text = text.replace(found, instead)
    return "".join(_WRAPPED.sub(r"\1", text).lower().split())
