"""Finds a query, or the address of a page, in the text of an action; pure.

The block that ends last counts:

    <search> query </search>
    <visit> https://... </visit>
"""

from __future__ import annotations

from typing import NamedTuple

from toolsvc.plugin.actions import InvalidAction

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
    end, (opening, closing) = max((action.rfind(marks[1]), marks) for marks in (SEARCH, VISIT))
    if end < 0:
        raise InvalidAction(
            "the action has neither <search> ... </search> nor <visit> ... </visit>"
        )
    start = action.rfind(opening, 0, end)
    if start < 0:
        raise InvalidAction(f"{closing} without {opening}")
    return request(action[start + len(opening) : end], visit=opening == VISIT[0])


def request(body: str, *, visit: bool) -> WebRequest:
    """What stands between the marks. InvalidAction if it cannot be asked for."""
    opening, closing = VISIT if visit else SEARCH
    text = " ".join(body.split())
    if not text:
        raise InvalidAction(f"nothing between {opening} and {closing}")
    if len(text) > LONGEST:
        raise InvalidAction(f"more than {LONGEST} characters between {opening} and {closing}")
    return WebRequest(text, visit)
