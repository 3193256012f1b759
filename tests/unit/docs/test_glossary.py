"""docs/understand/glossary.md: each term once, in order, in a sentence or two, with its page."""

from __future__ import annotations

import re

from tests.support.docs import DOCS

PAGE = (DOCS / "understand" / "glossary.md").read_text(encoding="utf-8")
ENTRIES = re.findall(r"^## (.+)\n\n((?:.+\n)+)", PAGE, re.MULTILINE)


def test_terms_are_in_order_and_none_comes_twice() -> None:
    terms = [term.casefold() for term, _ in ENTRIES]
    assert len(terms) == PAGE.count("\n## ") > 60
    assert terms == sorted(set(terms))


def test_an_entry_is_short_and_leads_to_the_page_that_explains_it() -> None:
    for term, text in ENTRIES:
        assert "](" in text, term
        words = re.sub(r"\]\([^)]*\)|`[^`]*`", "", text).replace("\n", " ")
        assert 1 <= len(re.findall(r"[.:](?: |$)", f"{words.strip()} ")) <= 4, term
        assert len(words) < 330, term
