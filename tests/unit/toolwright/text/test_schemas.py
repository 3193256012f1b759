"""Schemas read the same wherever they arrive."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.support.linear import assert_linear
from toolwright import wire
from toolwright.text.schemas import in_order, signature
from toolwright.tool.v1.tool_pb2 import ToolDescriptor

SCHEMA = {
    "additionalProperties": False,
    "required": ["town", "day"],
    "properties": {
        "unit": {"enum": ["C", "F"], "type": "string"},
        "day": {"type": "integer", "minimum": 0},
        "town": {"description": "where", "type": "string"},
    },
    "type": "object",
}
ORDERED = (
    '{"type": "object", "properties": {"town": {"type": "string", "description": "where"}, '
    '"day": {"type": "integer", "minimum": 0}, "unit": {"type": "string", "enum": ["C", "F"]}}, '
    '"required": ["town", "day"], "additionalProperties": false}'
)
READS = """
import json, sys
from engine.core.tools.spec import spec
from toolwright.tool.v1.tool_pb2 import ToolDescriptor
found = spec(ToolDescriptor.FromString(bytes.fromhex(sys.argv[1])), "s").arguments_schema
print(json.dumps(found))
"""


def test_an_author_s_order_comes_back() -> None:
    assert in_order(SCHEMA) == SCHEMA
    assert json.dumps(in_order(SCHEMA)) == ORDERED


def test_odd_names_in_required_are_passed_over() -> None:
    odd = {"required": [["b"], "b", 3, "b", "a"], "properties": {"c": {}, "a": {}, "b": {}}}
    assert list(in_order(odd)["properties"]) == ["b", "a", "c"]
    assert in_order(odd)["required"] == odd["required"]
    assert signature(odd) == "b: any, a: any, c?: any"
    assert signature({"properties": {"a": {}}}) == "a: any", "without the list all are needed"


@pytest.mark.alone
def test_a_long_schema_is_ordered_in_linear_time() -> None:
    def read(text: str) -> None:
        names = [f"{number:x}" for number in range(len(text) // 32)]
        schema = {"properties": {name: {} for name in names}, "required": names[::-1]}
        in_order(schema)
        signature(schema)

    assert_linear(read, texts=["x"])


def test_every_process_reads_the_same() -> None:
    """Protobuf's own order is another one in each."""
    sent = ToolDescriptor(name="t", arguments_schema=wire.struct(SCHEMA)).SerializeToString().hex()
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", READS, sent],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert done.stdout.strip() == ORDERED
