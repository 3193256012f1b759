"""Texts about a page and its failures; pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

LONGEST_TITLE = 200
LONGEST_URL = 500
OFF_THE_LIST = "ERR_PROXY_CONNECTION_FAILED"
"""What Chromium calls it: the only proxy there is stands for all hosts that may not be reached."""

_NETWORK = re.compile(r"net::(ERR_\w+)")
_CALL = re.compile(r"^\w+\.\w+: (Error: )?")
_HINDRANCE = re.compile(
    r"intercepts pointer events|is not (enabled|visible|editable|stable)|outside of the viewport"
    r"|did not find"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageView:
    """A page as it stands after an action. `notes`: what its text cannot tell."""

    title: str
    url: str
    text: str
    notes: Sequence[str] = ()
    image: bytes | None = None
    """PNG of the window."""


def describe(view: PageView, start: int, limit: int) -> tuple[str, bool]:
    """Title, address, notes, and the page's text from `start` on, at most `limit` characters of it;
    whether there is more after that."""
    head = [f"Page: {short(view.title, LONGEST_TITLE)}", f"URL: {short(view.url, LONGEST_URL)}"]
    notes = list(view.notes)
    if view.image is not None:
        return "\n".join([*head, *_bracketed(notes)]), False
    end = start + limit
    length = len(view.text)
    cut = end < length
    if start or cut:
        first = min(start, length)
        rest = f"; read with start={end} for more" if cut else ""
        notes.append(f"characters {first} to {min(end, length)} of {length}{rest}")
    return "\n".join([*head, *_bracketed(notes), view.text[start:end]]).rstrip(), cut


def why_not_loaded(failure: str, allowed: str) -> str:
    """The reason in Chromium's words about a request. `allowed`: the hosts that may be reached."""
    found = _NETWORK.search(failure)
    code = found[1] if found else failure.splitlines()[0]
    if code == OFF_THE_LIST:
        return f"it leads to a host that is not on the allow-list ({allowed})"
    if code == "ERR_ABORTED" or "Download is starting" in failure:
        return "it is no page but a download, or it was given up"
    return code


def why_not_done(complaint: str) -> str:
    """The reason in Playwright's words about an element: the hindrance, or the first line."""
    lines = [line.strip(" -") for line in complaint.splitlines()]
    hindrances = [line for line in lines if _HINDRANCE.search(line)]
    return hindrances[-1] if hindrances else _CALL.sub("", lines[0])


def short(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest]}..."


def _bracketed(notes: Sequence[str]) -> list[str]:
    return [f"[{note}]" for note in notes]
