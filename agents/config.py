"""The recipe's [agents] table. What an agent is stands in [task.agent]."""

from __future__ import annotations

from pydantic import Field

from toolwright.recipe import AGENTS_ADDRESS, ProcessTable


class AgentsTable(ProcessTable):
    """Settings of `agents serve RECIPE`."""

    address: str = Field(
        default=AGENTS_ADDRESS,
        description="where `agents serve` answers grpc.health.v1; port 0 is a free one",
    )
