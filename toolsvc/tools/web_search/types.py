"""The vocabulary of `web_search`."""

from __future__ import annotations

from dataclasses import dataclass

from toolsvc.errors import BackendDown, BackendRefuses
from toolsvc.plugin.results import ToolFailed


@dataclass(frozen=True, slots=True, kw_only=True)
class WebHit:
    """One result of a search."""

    title: str
    url: str
    """Empty where the search engine answers by itself and names no page."""
    snippet: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What can be read on a page."""

    url: str
    """Final address, after redirects."""
    title: str
    text: str


class SearchDown(BackendDown):
    """The search API cannot be reached, or has no room."""


class SearchRefused(BackendRefuses):
    """The search API answered that it will not: a wrong key, no credit, another API."""


class PageUnreadable(ToolFailed):
    """The page is not there, not public or not text; the policy reads the message."""
