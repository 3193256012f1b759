"""Paths in a patch: plain, renamed, quoted, and headers that are refused."""

from __future__ import annotations

import pytest

from toolwright.reading.patches import changed_paths

pytestmark = pytest.mark.quick


def test_paths_of_each_file() -> None:
    patch = (
        "diff --git a/tests/a.py b/tests/a.py\n--- a/tests/a.py\n+++ b/tests/a.py\n"
        "@@ -1 +1 @@\n-x\n+diff --git a/no.py b/no.py\n"
        "diff --git a/old name.py b/new.py\nrename from old name.py\n"
        'diff --git "a/t/\\303\\244 \\"x\\".png" "b/t/\\303\\244 \\"x\\".png"\n'
    )
    assert changed_paths(patch) == [
        ("tests/a.py", "tests/a.py"),
        ("old name.py", "new.py"),
        ('t/ä "x".png', 't/ä "x".png'),
    ]


@pytest.mark.parametrize("header", ["x.py x.py", "a/x.py", '"a/x.py b/x.py'])
def test_a_header_without_both_paths_is_refused(header: str) -> None:
    with pytest.raises(ValueError, match="has no a/PATH b/PATH"):
        changed_paths(f"diff --git {header}\n")
