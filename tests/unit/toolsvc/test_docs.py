"""The examples of docs/tools.md are tools; tests/integration/toolsvc/test_docs.py calls them."""

from pathlib import Path

import pytest

from tests.support.tutorial import EXAMPLES, Example
from toolsvc.sources.loader import load_tool_file


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.file)
def test_an_example_can_be_served(tmp_path: Path, example: Example) -> None:
    path = tmp_path / example.file
    path.write_text(example.code)
    (tool,) = load_tool_file(path)
    assert tool.describe().stop_strings
    assert len(example.code.splitlines()) <= 22


def test_the_page_shows_each_kind_of_tool() -> None:
    assert [example.file for example in EXAMPLES] == [
        "shout.py",
        "note.py",
        "swatch.py",
        "photos.py",
        "guess.py",
    ]
    assert all(example.commands for example in EXAMPLES)
