"""Ids of traces and spans, derived from the names that a run gives its trajectories. Pure.

A trajectory is one trace. No message carries an id: engine, tool service, learner, page and log
derive the same id from the run and the trajectory's name. So a tool service makes its span a child
of the engine's without a header. One gRPC stream may carry the calls of many trajectories.

Invariants
- Equal names give equal ids, in every process, life and language: first bytes of a SHA-256.
- No id is all zeros, which the W3C's trace context forbids.
- `run` is the owner that an engine chooses once: the journal's fact `owner`, the `owner` of
  OpenSession. Two runs of one recipe share no trace.
"""

from __future__ import annotations

import hashlib

TRACE_BYTES = 16
SPAN_BYTES = 8


def trace_id(run: str, trajectory: str) -> str:
    """The trace of a trajectory ("g0000012-3"): 32 lower-case hex digits, the first 16 bytes of
    SHA-256 of "trace", `run` and `trajectory`, joined by line feeds."""
    return _derived(TRACE_BYTES, "trace", run, trajectory)


def root_span(run: str, trajectory: str) -> str:
    """The span that is the whole trajectory: 16 hex digits."""
    return span_id(run, trajectory, "trajectory")


def call_span(run: str, call_id: str) -> str:
    """The engine's span of a tool call ("g0000012-3/b1r0a0/2/0"), parent of the tool service's."""
    return span_id(run, call_id, "call")


def span_id(run: str, name: str, part: str) -> str:
    """The span of a part, such as "reward", of a trajectory or call: 16 lower-case hex digits.

    They are the first 8 bytes of SHA-256 of "span", `run`, `name` and `part`, joined by line feeds.
    """
    return _derived(SPAN_BYTES, "span", run, name, part)


def trajectory_of(call_id: str) -> str:
    """The trajectory that a call or an attempt belongs to, by its id."""
    return call_id.partition("/")[0]


def _derived(size: int, *words: str) -> str:
    digest = hashlib.sha256("\n".join(words).encode()).digest()[:size]
    return digest.hex() if any(digest) else f"{1:0{2 * size}x}"
