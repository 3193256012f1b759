"""The parser of pages, as `toolsvc.confined` wants one: the text by trafilatura.

What the libraries load when they first need it (codecs, lists of words) is loaded in `rehearse`.
Of a page's metadata only the title is looked for, in trafilatura's own order: the search for a date
loads modules for each language that it tries.
"""

from __future__ import annotations

import encodings
import importlib
import json
import pkgutil
from contextlib import suppress
from typing import BinaryIO

import trafilatura
from trafilatura.metadata import examine_meta, extract_meta_json, extract_title
from trafilatura.utils import load_html

from toolsvc.tools.web_search.charset import decoded, guessed

_REHEARSED = "".join(
    (
        "<html><head><title>A title</title>",
        '<script type="application/ld+json">{"@type": "Article", "headline": "A title"}</script>',
        '</head><body><div class="x">',
        *(f"<p>A <b>text</b> in <a href='/{n}'>parts</a>, of {n} words.</p>" for n in range(30)),
        "<table><tr><td>1</td></tr></table><ul><li>2</li></ul></div></body></html>",
    )
)


def rehearse() -> None:
    for module in pkgutil.iter_modules(encodings.__path__):
        with suppress(ImportError):  # those of another system
            importlib.import_module(f"encodings.{module.name}")
    for codec in ("shift_jis", "gb18030", "big5", "euc_kr", "iso2022_jp", "windows-1251"):
        "".encode(codec)
    guessed("Grüße aus Köln, schöne Straße".encode("cp1252") * 4)
    for page in (_REHEARSED, "<html><body>short</body></html>", "no markup"):
        _read(page.encode(), "https://example.org/", "utf-8", markup=True)


def work(request: str, file: BinaryIO) -> bytes:
    """`request`: JSON of url, charset and markup, as `Fetched` has them. Answers title and text."""
    asked = json.loads(request)
    title, text = _read(file.read(), asked["url"], asked["charset"], markup=asked["markup"])
    return json.dumps({"title": title, "text": text}, ensure_ascii=False).encode("utf-8", "replace")


def _read(body: bytes, url: str, charset: str | None, *, markup: bool) -> tuple[str, str]:
    page = decoded(body, header=charset, markup=markup)
    if not markup:
        return "", page.strip()
    found = trafilatura.bare_extraction(page, url=url, include_comments=False)
    if found is None:
        return "", trafilatura.html2txt(page).strip()
    document = found if isinstance(found, dict) else found.as_dict()
    return _title(page), (document["text"] or "").strip()


def _title(page: str) -> str:
    tree = load_html(page)
    if tree is None:
        return ""
    metadata = examine_meta(tree)
    # As trafilatura does: whatever its reading of JSON-LD raises is no reason to lose the page.
    with suppress(Exception):
        metadata = extract_meta_json(tree, metadata)
    return metadata.title or extract_title(tree) or ""
