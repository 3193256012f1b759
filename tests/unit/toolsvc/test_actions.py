"""Parsing of action texts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolsvc.plugin.actions import InvalidAction, find_tool, parse_arguments
from toolsvc.plugin.tool import Tool
from toolsvc.tools.python import fenced_code, plain_code
from toolsvc.types import Descriptor, JsonCallFormat, RawFormat, TagFormat


def descriptor(name: str, form: TagFormat | JsonCallFormat | RawFormat) -> Descriptor:
    kind = type(name, (Tool,), {"name": name, "format": form})
    return kind().describe()


PYTHON = descriptor("python", TagFormat(open="<python>", close="</python>", argument="code"))
SEARCH = descriptor("search", TagFormat(open="<search>", close="</search>", argument="query"))
CROP = descriptor("crop", JsonCallFormat())
ZOOM = descriptor("zoom", JsonCallFormat())
RAW = descriptor("raw", RawFormat())


@given(st.text(alphabet="ab<>/pythonc \n", max_size=60))
def test_any_body_without_the_closing_tag_comes_back_as_it_is(body: str) -> None:
    if "</python>" in body + "</python>"[:-1]:
        return
    action = f"<python>{body}</python>"
    if action.rfind("</python>") == len(action) - len("</python>"):
        assert parse_arguments(action, PYTHON) == {"code": body}


@pytest.mark.parametrize("action", ["", "nothing", "<python> 1+1", "1+1 </python>"])
def test_no_block_is_an_invalid_action(action: str) -> None:
    with pytest.raises(InvalidAction):
        parse_arguments(action, PYTHON)


def test_the_tool_is_found_by_its_closing_mark() -> None:
    assert find_tool("<search>x</search>", [PYTHON, SEARCH]) == "search"
    assert find_tool("<search>x</search> <python>1</python>", [PYTHON, SEARCH]) == "python"
    assert find_tool("whatever", [PYTHON]) == "python"
    assert find_tool("whatever", [PYTHON, RAW]) == "raw"
    with pytest.raises(InvalidAction, match="python, search"):
        find_tool("whatever", [PYTHON, SEARCH])


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (" x = 1", "x = 1"),
        ("x = 1\n", "x = 1"),
        ("\n    if x:\n        y\n    z\n", "if x:\n    y\nz"),
        (" x = 1\ny = 2", "x = 1\ny = 2"),
        ("\r\n x\r\n", "x"),
        ("", ""),
        ("   ", ""),
        ('s = """a\n   \nb"""', 's = """a\n   \nb"""'),
        ('    s = """a\n      \n    b"""\n    s', 's = """a\n  \nb"""\ns'),
        ('s = """a\n\t\n"""\n', 's = """a\n\t\n"""'),
        ("  if x:\r\n    y\r\n  \r\n  z", "if x:\r\n  y\r\n\r\nz"),
        ("  x\n\n  y", "x\n\ny"),
    ],
)
def test_indentation_that_means_nothing_is_taken_off(body: str, code: str) -> None:
    assert plain_code(body) == code


@pytest.mark.parametrize(
    ("action", "code"),
    [
        ("Think.\n```python\nx = 1\n```\n```output", "x = 1"),
        (
            "```py\nx = 1\n```\nand then\n```python\nif x:\n    print(x)\n```",
            "x = 1\nif x:\n    print(x)",
        ),
        ("- so:\n  ```python\n  x = 1\n  x\n  ```", "x = 1\nx"),
        ("```python\r\nx = 1\r\n```", "x = 1"),
        ("```python\nprint('```')\n```", "print('```')"),
    ],
)
def test_all_fenced_blocks_are_one_program(action: str, code: str) -> None:
    assert fenced_code(action) == code


@pytest.mark.parametrize(
    "action", ["no code", "```\nx = 1\n```", "```python\nx = 1", "```bash\nls\n```"]
)
def test_an_action_without_a_fenced_block_of_python_is_invalid(action: str) -> None:
    with pytest.raises(InvalidAction, match="```python"):
        fenced_code(action)
