"""What an engine stands on: how it reaches its neighbours, and what drives its journal.

The simulator (`bench/simulate`) replaces each of them; a real engine has the defaults.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.core.sampler.fleet import Connect as ConnectSampler
from engine.core.tools.service import Connect as ConnectTools
from engine.serving.journal.writer import Drive


@dataclass(frozen=True, slots=True, kw_only=True)
class Seams:
    """samplers: None = HTTP. tools: None = gRPC. journal: None = a thread."""

    samplers: ConnectSampler | None = None
    tools: ConnectTools | None = None
    journal: Drive | None = None
