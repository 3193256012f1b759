"""The process that compares two mathematical expressions, one pair at a time, with `math-verify`.

`symbols` starts it. Any question may end it, because a policy wrote the expression. The kernel's
own timer kills it when a question takes too long. That works in the middle of C code too, where a
Python handler would wait for ever (9**9**9**9). The timer counts CPU seconds, so a busy machine
makes no answer wrong. The process ends when its standard input does.

A line in: {"answer", "golds", "seconds"}; a line out: {"right"}. It is run as a file and imports
nothing of this project: it is loaded twice as fast.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import signal
import sys
from typing import Any

MEMORY = 2 << 30
"""Bytes of address space; what needs more is no answer."""


def main() -> None:
    replies = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # whatever a library prints is no reply
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    for kind, most in ((resource.RLIMIT_AS, MEMORY), (resource.RLIMIT_FSIZE, 0)):
        resource.setrlimit(kind, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    logging.disable()
    compare = _comparison()
    compare("1/2", "\\frac{1}{3}")  # what is built at first use is no question's time
    # The parent reads stderr up to this point: later output would fill the pipe and block the
    # process.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(nowhere, descriptor)
    replies.write(b'{"ready": true}\n')
    for line in sys.stdin.buffer:
        asked = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, asked["seconds"])
        right = any(compare(asked["answer"], gold) for gold in asked["golds"])
        signal.setitimer(signal.ITIMER_PROF, 0)
        replies.write(json.dumps({"right": right}).encode() + b"\n")


CLOSE = 1e-4
"""Largest difference of two equal decimals, as a share of the larger one (`numbers.CLOSE`)."""
EXACT = 1e-40
"""Largest difference of two equal exact numbers, likewise: that of their evaluation."""
_DIGITS = 60


def _comparison() -> Any:
    from math_verify import (
        ExprExtractionConfig,
        LatexExtractionConfig,
        grader,
        parse,
        verify,
    )

    loosely = grader.sympy_numeric_eq

    def numerically(one: Any, other: Any, *how: int) -> bool:
        """The library compares by decimal places, so that small numbers are all equal: what it
        calls equal has to be close as well."""
        return bool(loosely(one, other, *how)) and _close(one, other)

    grader.sympy_numeric_eq = numerically

    def parsed(text: str) -> Any:
        box = f"\\boxed{{{text}}}"
        # The box first: inside of it everything is the expression, dollar signs or not.
        read = parse(box, extraction_config=[LatexExtractionConfig()], parsing_timeout=None)
        return read or parse(text, extraction_config=[ExprExtractionConfig()], parsing_timeout=None)

    def compare(answer: str, gold: str) -> bool:
        right, said = parsed(gold), parsed(answer)
        return bool(right and said and verify(right, said, timeout_seconds=None))

    return compare


def _close(one: Any, other: Any) -> bool:
    """Whether two expressions are close at one point. Those that have no value there are."""
    from sympy import (  # type: ignore[import-untyped]
        Float,
        MatrixBase,
        Rational,
        UnevaluatedExpr,
    )

    if isinstance(one, MatrixBase) or isinstance(other, MatrixBase):
        return True  # compared number by number
    if one.atoms(UnevaluatedExpr) or other.atoms(UnevaluatedExpr):
        return True  # a per cent sign: 50% equals both 50 and 0.5
    names = sorted(one.free_symbols | other.free_symbols, key=str)
    point = {name: Rational(1234577 + 7919 * place, 1000003) for place, name in enumerate(names)}
    left, right = (found.subs(point).doit().evalf(_DIGITS) for found in (one, other))
    if not (left.is_number and right.is_number):
        return True
    most = CLOSE if one.atoms(Float) or other.atoms(Float) else EXACT
    return bool(abs(left - right) <= most * max(abs(left), abs(right)))


if __name__ == "__main__":
    main()
