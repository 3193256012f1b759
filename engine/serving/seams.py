"""The engine's replaceable edges: how it reaches its neighbours, and what drives its journal.

The simulator (`bench/simulate`) replaces each of them; a real engine has the defaults.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.core.sampler.fleet import Connect as ConnectSampler
from engine.core.tools.link.service_link import Connect as ConnectTools
from engine.serving.journal.writer import Drive


@dataclass(frozen=True, slots=True, kw_only=True)
class Seams:
    """The replaceable edges of one engine."""

    samplers: ConnectSampler | None = None
    """None: HTTP."""
    tools: ConnectTools | None = None
    """None: gRPC."""
    journal: Drive | None = None
    """None: a thread."""
