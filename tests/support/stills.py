"""Pages that are one file: the data that stands in them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any


def data_of(page: str) -> dict[str, Any]:
    """What the page draws. It has one block of data and one script, and names no address."""
    found = _Scripts(page).found
    assert [kind for kind, _ in found] == ["application/json", None]
    told = json.loads(found[0][1])
    assert isinstance(told, dict)
    return told


def words_of(page: str) -> str:
    """All texts of its data, one after the other."""

    def texts(value: object) -> Iterator[str]:
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict | list):
            for inner in value.values() if isinstance(value, dict) else value:
                yield from texts(inner)

    return "\n".join(texts(data_of(page)))


def plots_of(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The plots of all sections."""
    return (plot for section in data["sections"] for plot in section["plots"])


class _Scripts(HTMLParser):
    """(type, text) of each script."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str | None, str]] = []
        self._within = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert not {"src", "href"} & dict(attrs).keys(), tag
        if tag == "script":
            self._within = True
            self.found.append((dict(attrs).get("type"), ""))

    def handle_endtag(self, tag: str) -> None:
        self._within &= tag != "script"

    def handle_data(self, data: str) -> None:
        if self._within:
            kind, text = self.found[-1]
            self.found[-1] = (kind, text + data)
