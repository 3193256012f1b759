"""Texts of a file by their headings."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolwright.text.sections import sections

pytestmark = pytest.mark.quick


def test_a_section_is_its_text_to_the_letter(tmp_path: Path) -> None:
    file = tmp_path / "prompts.txt"
    file.write_text(
        "#### agent\n\nOne \\\nline with \\boxed{}.\n##ST1: no heading\n#### item\n- {name}\n\n",
        encoding="utf-8",
    )
    assert sections(file) == {
        "agent": "\nOne line with \\boxed{}.\n##ST1: no heading",
        "item": "- {name}\n",
    }
