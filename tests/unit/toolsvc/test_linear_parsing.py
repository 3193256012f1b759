"""Every parser that a policy's text reaches takes time in step with its length, whatever it is:
1 MiB of each of many pieces. Each also stands between the marks that lead into the parser."""

import pytest

from tests.support.linear import assert_linear
from toolsvc.host.observation import clean
from toolsvc.plugin.actions import InvalidAction, find_tool, last_block
from toolsvc.plugin.tool import Tool
from toolsvc.schemas.functions import json_in
from toolsvc.sources.verltool.observations import as_result
from toolsvc.tools.bash.request import find_request as bash_request
from toolsvc.tools.create.request import check_name, schema_of
from toolsvc.tools.function_call import parse_function
from toolsvc.tools.image.image_tool import find_request as image_request
from toolsvc.tools.python import fenced_code, plain_code
from toolsvc.tools.sql.commands import objection
from toolsvc.tools.sql.sql_tool import find_statement
from toolsvc.tools.swe.action import find_call
from toolsvc.tools.swe.swe_tool import _denial
from toolsvc.tools.swe.verifying.report import read_report
from toolsvc.tools.web_search.web_search_tool import find_request as web_request
from toolsvc.types import JsonCallFormat
from toolwright.reading.json_text.json_bounds import read_json

pytestmark = pytest.mark.alone


class Tagged(Tool):
    name = "tagged"


class Json(Tool):
    name = "json"
    format = JsonCallFormat()


TOOLS = [
    Tagged().describe(),
    *[type(f"J{n}", (Json,), {"name": f"j{n}"})().describe() for n in range(8)],
]
DENIED = _denial(("git", "curl"))

PARSERS = {
    "parameters": (lambda text: parse_function(f"a>{text}"), "", ""),
    "function": (parse_function, "", ""),
    "tag": (lambda text: last_block(text, "<a>", "</a>"), "<a>", "</a>"),
    "which-tool": (lambda text: find_tool(text, TOOLS), "<tool_call>", "</tool_call>"),
    "bash": (bash_request, "<function=bash>", "</function>"),
    "bash-json": (bash_request, "<tool_call>", "</tool_call>"),
    "swe": (find_call, "<function=search>", "</function>"),
    "swe-denied": (DENIED.search, "", "x"),
    "swe-pytest": (lambda text: read_report("pytest", text), "PASSED ", ""),
    "swe-unittest": (lambda text: read_report("unittest", text), "test (a.b)\n", ""),
    "image": (lambda text: image_request(text, "image"), "<tool_call>", "</tool_call>"),
    "sql": (find_statement, "<sql>", "</sql>"),
    "postgres": (lambda text: objection(text, writable=True), "", ""),
    "postgres-comment": (lambda text: objection(text, writable=True), "/*", "*/ select"),
    "web": (web_request, "<search>", "</search>"),
    "fenced": (fenced_code, "```python\n", "\n```"),
    "fenced-open": (fenced_code, "", ""),
    "code": (plain_code, "  x", "x"),
    "json": (read_json, "", ""),
    "json-text": (read_json, '"', '"'),
    "json-array": (read_json, "[", "1]"),
    "answer": (json_in, "<think>", ""),
    "schema": (schema_of, "", ""),
    "name": (lambda text: check_name(text, ()), "a", ""),
    "observation": (clean, "", "\x00"),
    "verltool": (lambda text: as_result({"obs": text, "image": []}, False, True), "", ""),
}


@pytest.mark.parametrize("name", PARSERS)
def test_work_grows_in_step_with_the_text(name: str) -> None:
    parser, before, after = PARSERS[name]
    assert_linear(parser, before, after)


def test_parameters_are_read_as_before() -> None:
    text = "a> <parameter=x>\n1\n</parameter><parameter=y z>no</parameter>"
    text += "<parameter=w_1>a<parameter=b>c</parameter>"
    assert parse_function(text) == ("a", {"x": "1", "w_1": "a<parameter=b>c"})
    assert parse_function("a><parameter=x>never closed") == ("a", {})
    with pytest.raises(InvalidAction, match="no number"):
        parse_function("a><parameter=insert_line>" + "9" * 400 + "</parameter>")
