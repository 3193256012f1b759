"""The agent host: starts an agent for each trajectory that the engine hands out.

    task   engine ── Take ──> host ── starts ──> keeper ──> agent ── HTTP ──> ingress
    end    engine <── Report, Ended ── host <── exit, result file ── agent

`outcomes`, `environment` and `process.output` are pure. `process.keeper` is a process of its own.
"""

from __future__ import annotations
