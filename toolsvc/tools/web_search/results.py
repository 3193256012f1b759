"""From the hits of a search to the text for the policy; pure.

1. Title (https://...)
snippet

2. ...
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from urllib.parse import urldefrag

from courlan import normalize_url

from toolsvc.tools.web_search.types import Page, WebHit

NOTHING_FOUND = "The search found nothing."
_CUT = " ..."


def distinct(hits: Iterable[WebHit], most: int) -> list[WebHit]:
    """The first `most` hits, the best of each page; a hit without an address is one of its own."""
    seen: set[str] = set()
    found: list[WebHit] = []
    for hit in hits:
        page = same_page(hit.url)
        if page and page in seen:
            continue
        seen.add(page)
        found.append(hit)
        if len(found) == most:
            break
    return found


def same_page(url: str) -> str:
    """Equal for addresses that lead to one page: scheme, `www.`, default port, fragment, order of
    the query, trackers and a slash at the end do not tell pages apart."""
    try:
        plain = normalize_url(urldefrag(url.strip()).url)
    except ValueError:
        return url
    path, mark, query = plain.partition("://")[2].removeprefix("www.").partition("?")
    return path.rstrip("/") + mark + query


def shortened(text: str, most: int) -> str:
    """The text's first `most` characters, the mark included that says that it was cut."""
    text = text.strip()
    if len(text) <= most:
        return text
    return text[: max(0, most - len(_CUT))].rstrip() + _CUT


def as_text(hits: Sequence[WebHit], gists: Sequence[str], snippet_chars: int) -> str:
    """The observation of a search. `gists`: what is shown of each hit's page, or ""."""
    blocks = []
    for number, (hit, gist) in enumerate(zip(hits, gists, strict=True), start=1):
        address = f" ({hit.url})" if hit.url else ""
        heading = f"{number}. {one_line(hit.title)}{address}"
        snippet = shortened(one_line(hit.snippet), snippet_chars)
        blocks.append("\n".join(filter(None, (heading, snippet, gist))))
    return "\n\n".join(blocks) or NOTHING_FOUND


def page_as_text(page: Page, most: int) -> str:
    """The observation of a visit."""
    return f"{one_line(page.title)} ({page.url})\n{shortened(page.text, most)}".lstrip()


def one_line(text: str) -> str:
    return " ".join(text.split())
