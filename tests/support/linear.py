"""Whether work grows in step with the text, told by the ratio of two sizes."""

import contextlib
import gc
import time
from collections.abc import Callable, Sequence

SMALL, LARGE = 1 << 16, 1 << 20
_NOISE = 0.005
"""Seconds of CPU: below, a ratio says nothing."""
_ALLOWED = 3 * LARGE // SMALL
"""A quadratic one has 256."""
_LARGE_ONES = 3

WORST: Sequence[str] = (
    *("<", "<<", ">", "</", "<a>", "</a>", "<python>", "</python>", "<sql>", "</sql>"),
    *("<tool_call>", "</tool_call>", "<tool_call></tool_call>", '<tool_call>{"name": "a"}'),
    *("<function=", "</function>", "<function=a><parameter=", "<parameter=", "<parameter=a>"),
    *("<parameter=a>b</parameter>", "</parameter>", "<search>", "</search>", "</visit>"),
    *("```", "```python\n", "```\n", "```python\n```\n", "\n ", " \n", " ", "\t", "\n", "\r\n"),
    *("/*", "*/", "/**/", "--", "--\n", ";", "; ", "/", "a/", "; /", "(", "|", "&&", "$("),
    *("[", "]", "{", '{"a":', '"', '"a",', "\\", "\\u", "9", "0.", "1e", "1,", "-"),
    *("\x1b[", "\x1b[0;", "\x1b", "\x00", "é", "\U0001f600", "<image>", "data:a/b;base64,", "=="),
)


def seconds(work: Callable[[str], object], text: str) -> float:
    """CPU of this thread, without the garbage collector: its share grows with the other tests."""
    gc.disable()
    try:
        began = time.thread_time()
        with contextlib.suppress(Exception):  # how it ends is not what is asked here
            work(text)
        return time.thread_time() - began
    finally:
        gc.enable()


def assert_linear(
    work: Callable[[str], object], before: str = "", after: str = "", texts: Sequence[str] = WORST
) -> None:
    """For the texts, between `before` and `after`: all of them small, and those large that took
    longest."""

    def text(piece: str, size: int) -> str:
        return before + piece * (size // len(piece)) + after

    took = {piece: seconds(work, text(piece, SMALL)) for piece in texts}
    for piece in sorted(took, key=took.__getitem__)[-_LARGE_ONES:]:
        large = seconds(work, text(piece, LARGE))
        allowed = _ALLOWED * max(took[piece], _NOISE)
        assert large < allowed, f"{piece!r}: {took[piece]:.4f} s, {large:.4f} s"
