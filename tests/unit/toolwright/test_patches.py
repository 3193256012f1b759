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


def test_a_path_may_hold_the_prefix_of_another() -> None:
    rename = "similarity index 90%\nrename from {}\nrename to {}\nindex 1..2 100644\n"
    patch = (
        "diff --git a/x b/y.py b/z.py\n"
        + rename.format("x b/y.py", "z.py")
        + "--- a/x b/y.py\n+++ b/z.py\n@@ -1 +1 @@\n-rename from no\n+x\n"
        "diff --git a/x b/y.py b/x b/y.py\nindex 1..2 100644\n"
        'diff --git a/x b/y "b/\\303\\244"\r\n' + rename.format("x b/y", '"\\303\\244"\r')
    )
    assert changed_paths(patch) == [("x b/y.py", "z.py"), ("x b/y.py", "x b/y.py"), ("x b/y", "ä")]


@pytest.mark.parametrize("header", ["x.py x.py", "a/x.py", '"a/x.py b/x.py'])
def test_a_header_without_both_paths_is_refused(header: str) -> None:
    with pytest.raises(ValueError, match="has no a/PATH b/PATH"):
        changed_paths(f"diff --git {header}\n")
