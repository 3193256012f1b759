"""SWE-bench's three formats that end a test's name at its first blank.

    words        FAILED tests/test_a.py::test_b[x y] - assert   -> tests/test_a.py::test_b[x
    options      ...::test_b[/home/me/data.txt]                 -> ...::test_b[/data.txt]
    matplotlib   ...::test_b[MouseButton.LEFT]                  -> ...::test_b[1]

The set's lists hold the names so. An expected failure counts as passed, as in the set's harness.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from toolsvc.tools.swe.verifying.logs.pytest_summary import STATUSES, summary_of
from toolsvc.tools.swe.verifying.logs.statuses import PASSED, XFAIL, Found, merged

_BUTTONS = (("MouseButton.LEFT", "1"), ("MouseButton.RIGHT", "3"))


def read_words(output: str) -> dict[str, str]:
    return merged(_found(output, lambda name: name))


def read_options(output: str) -> dict[str, str]:
    return merged(_found(output, _without_folders))


def read_matplotlib(output: str) -> dict[str, str]:
    for button, number in _BUTTONS:
        output = output.replace(button, number)
    return merged(_found(output, lambda name: name))


def _found(output: str, named: Callable[[str], str]) -> Iterator[Found]:
    for line in summary_of(output):
        status, *words = line.split(maxsplit=2)
        if status in STATUSES and words and not words[0].startswith("["):
            yield named(words[0]), PASSED if status == XFAIL else status


def _without_folders(name: str) -> str:
    """A parameter that is a path, without the folders of the machine that recorded it."""
    test, bracket, option = name.partition("[")
    inner, closing, _ = option.rpartition("]")
    if not (bracket and closing and inner.startswith("/")):
        return name
    if inner.startswith("//") or "*" in inner:
        return name
    return f"{test}[/{inner.rpartition('/')[2]}]"
