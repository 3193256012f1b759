"""The recipe's [agents] table. What an agent is stands in [task.agent]."""

from __future__ import annotations

from toolwright.recipe import AGENTS_ADDRESS, ProcessTable


class AgentsTable(ProcessTable):
    """Settings of `agents serve`, which `toolwright run` starts if the recipe starts agents."""

    address: str = AGENTS_ADDRESS
    """Address for `grpc.health.v1`; `--listen` replaces it. Port 0 is a free one."""
