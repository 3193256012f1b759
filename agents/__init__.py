"""The agent host: starts an agent for each trajectory that the engine hands out.

    task   engine ── Take ──> host ──> kind ── starts ──> agent ── HTTP ──> ingress
    end    engine <── Report, Ended ── host <── kind <── its end, its result ── agent

`host` knows trajectories and no processes; `kinds` has the ways to run an agent. `outcomes`,
`environment` and `process.output` are pure. `process.keeper` is a process of its own.
"""

from __future__ import annotations
