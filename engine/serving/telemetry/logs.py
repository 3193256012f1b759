"""Logs: JSON lines for machines, and each warning as one sentence for people."""

from __future__ import annotations

import contextlib
import logging
import sys
from contextvars import ContextVar
from pathlib import Path
from typing import TextIO

import structlog

from toolwright.tracing.ids import trace_id, trajectory_of

LONGEST_VALUE = 300
"""Characters of one value in a sentence; the JSON line has the whole value."""


def log_to(file: Path) -> None:
    """Structured logs as JSON lines to `file`, warnings also to stderr as text."""
    file.parent.mkdir(parents=True, exist_ok=True)
    stream = _LossyStream(file.open("a", buffering=1, encoding="utf-8"))
    structlog.configure(
        processors=[
            _name_the_trace,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            _warn_people,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(file=stream),  # type: ignore[arg-type]
        cache_logger_on_first_use=False,
    )


def bind_run(run: str) -> None:
    """From here on a log line that names an attempt also has its trajectory's trace id. This holds
    in all tasks that start from here."""
    _RUN.set(run)


def sentence(level: str, event: structlog.typing.EventDict) -> str:
    """One line: "warning: sampler set aside: server http://..., why ...". It begins with the event
    and goes on with its facts. A traceback is cut to its last line."""
    facts = {key: value for key, value in event.items() if key not in _FRAME}
    if "exception" in facts:
        facts["exception"] = str(facts["exception"]).strip().rpartition("\n")[2]
    said = ", ".join(f"{key} {_short(value)}" for key, value in facts.items())
    happened = str(event.get("event")).replace("_", " ")
    return f"{level}: {happened}: {said}" if said else f"{level}: {happened}"


_FRAME = ("event", "level", "timestamp", "trace")
"""Keys that the sentence leaves out, because it names the attempt of the trace."""
_RUN: ContextVar[str] = ContextVar("run", default="")
"""The journal's owner, which names the traces."""


def _short(value: object) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]} ..."


def print_line(line: str, out: TextIO) -> None:
    """Prints a line for people. It is dropped if there is no room: `out` may be a file on a full
    disk."""
    with contextlib.suppress(OSError):
        print(line, file=out, flush=True)


class _LossyStream:
    """A text stream that drops text on a full disk: a log line must not end a run."""

    def __init__(self, inner: TextIO) -> None:
        self._inner = inner

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            return self._inner.write(text)
        return 0

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._inner.flush()


def _name_the_trace(
    _logger: object, _method: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    if (run := _RUN.get()) and isinstance(attempt := event.get("attempt"), str):
        event["trace"] = trace_id(run, trajectory_of(attempt))
    return event


def _warn_people(
    _logger: object, method: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    if method in ("warning", "error", "critical"):
        print_line(sentence(method, event), sys.stderr)
    return event
