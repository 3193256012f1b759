"""Random histories of calls and sessions are answered as a model of the contract says."""

from __future__ import annotations

from toolsvc.check.check import check
from toolsvc.check.client import CheckClient
from toolsvc.check.model.search import Search
from toolsvc.check.types import CheckFailed, Rule

HISTORIES = 40
AT_ONCE = 4
SECONDS = 5.0
"""The search ends after this time, in seconds."""
SHRINK_SECONDS = 10.0
"""Time to shorten a history that fails, in seconds."""


@check(Rule.HISTORY, timed=True)
async def histories_are_as_the_contract_says(client: CheckClient) -> None:
    """Whatever is opened, called, repeated, changed, cancelled, renewed, forked and closed, in
    whatever order, in several sessions of several owners, comes to what the contract says."""
    search = Search(client, client.seconds(SECONDS), client.seconds(SHRINK_SECONDS))
    if breach := await search.run(range(HISTORIES), AT_ONCE):
        raise CheckFailed(str(breach))
