"""The docs name every metric of every process, and no other."""

from __future__ import annotations

import re

from tests.support.docs import DOCS
from tests.support.metric_names import OF_A_PROCESS, all_names


def test_the_docs_name_every_metric_and_no_other() -> None:
    page = (DOCS / "operate" / "observability.md").read_text(encoding="utf-8")
    named = {
        name.removesuffix("_total")
        for name in re.findall(
            r"`(toolwright_(?:engine|toolsvc|learner|memory|ingress)_[a-z_]+)`", page
        )
        if not OF_A_PROCESS.search(name)
    }
    assert named == {name for name in all_names() if not OF_A_PROCESS.search(name)}
