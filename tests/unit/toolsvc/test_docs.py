"""The examples of docs/tools.md are tools."""

import re
from pathlib import Path

import pytest

import toolsvc
from toolsvc.loader import load_tool_file

PAGE = Path(toolsvc.__file__).parents[1] / "docs" / "tools.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_an_example_can_be_served(tmp_path: Path, number: int) -> None:
    path = tmp_path / f"example{number}.py"
    path.write_text(BLOCKS[number])
    (tool,) = load_tool_file(path)
    assert tool.describe().stop_strings
    assert len(BLOCKS[number].splitlines()) <= 20
