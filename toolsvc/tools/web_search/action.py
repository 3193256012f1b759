"""Finds a query, or the address of a page, in the text of an action; pure.

The block that ends last counts:

    <search> query </search>
    <visit> https://... </visit>
"""

from __future__ import annotations

from typing import NamedTuple

from toolsvc.plugin.actions import InvalidAction, last_block, last_ends

SEARCH = ("<search>", "</search>")
VISIT = ("<visit>", "</visit>")
LONGEST = 2000
"""Characters of a query or an address; servers refuse longer ones."""


class WebRequest(NamedTuple):
    text: str
    visit: bool
    """It is the address of a page, not a query."""


def find_request(action: str) -> WebRequest:
    """InvalidAction if there is none."""
    ends = last_ends(action, (SEARCH[1], VISIT[1]))
    if not ends:
        raise InvalidAction(
            "the action has neither <search> ... </search> nor <visit> ... </visit>"
        )
    closing = max(ends, key=ends.__getitem__)
    opening, closing = VISIT if closing == VISIT[1] else SEARCH
    return request(last_block(action, opening, closing), visit=opening == VISIT[0])


def request(body: str, *, visit: bool) -> WebRequest:
    """What stands between the marks. InvalidAction if it cannot be asked for."""
    opening, closing = VISIT if visit else SEARCH
    text = " ".join(body.split())
    if not text:
        raise InvalidAction(f"nothing between {opening} and {closing}")
    if len(text) > LONGEST:
        raise InvalidAction(f"more than {LONGEST} characters between {opening} and {closing}")
    return WebRequest(text, visit)
