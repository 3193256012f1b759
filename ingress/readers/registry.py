"""The readers by name, and the grammar that makes a model call a tool. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args

from ingress.readers.hermes import HermesReader
from ingress.readers.llama_json import LlamaJsonReader
from ingress.readers.qwen3_xml import Qwen3XmlReader
from ingress.readers.types import PlainReader, ToolReader, Tools, function_of
from ingress.types import Constraint

ReaderName = Literal["hermes", "qwen3_xml", "llama_json"]
_READERS: Mapping[str, Callable[[Tools], ToolReader]] = {
    "hermes": HermesReader,
    "qwen3_xml": Qwen3XmlReader,
    "llama_json": LlamaJsonReader,
}
READERS: tuple[str, ...] = get_args(ReaderName)


def make_reader(name: ReaderName, tools: Tools) -> ToolReader:
    """A reader for one completion. Without tools, a text is text."""
    return _READERS[name](tools) if tools else PlainReader()


def calls_required(name: ReaderName, tools: Tools) -> Constraint:
    """The grammar under which a completion is a call of one of the tools."""
    functions = [function_of(tool) for tool in tools]
    if name == "llama_json":
        return Constraint(kind="json_schema", text=json.dumps({"anyOf": [*map(_llama, functions)]}))
    one = _hermes if name == "hermes" else _xml
    form = {
        "type": "tags_with_separator",
        "tags": [one(function) for function in functions],
        "separator": "\n",
        "at_least_one": True,
    }
    return Constraint(
        kind="structural_tag", text=json.dumps({"type": "structural_tag", "format": form})
    )


def _parameters(function: Mapping[str, Any]) -> Any:
    return function.get("parameters") or {"type": "object"}


def _hermes(function: Mapping[str, Any]) -> Mapping[str, Any]:
    return {
        "type": "tag",
        "begin": f'<tool_call>\n{{"name": {json.dumps(function.get("name"))}, "arguments": ',
        "content": {"type": "json_schema", "json_schema": _parameters(function)},
        "end": "}\n</tool_call>",
    }


def _xml(function: Mapping[str, Any]) -> Mapping[str, Any]:
    return {
        "type": "tag",
        "begin": f"<tool_call>\n<function={function.get('name')}>\n",
        "content": {"type": "qwen_xml_parameter", "json_schema": _parameters(function)},
        "end": "\n</function>\n</tool_call>",
    }


def _llama(function: Mapping[str, Any]) -> Mapping[str, Any]:
    return {
        "type": "object",
        "properties": {
            "name": {"const": function.get("name")},
            "parameters": _parameters(function),
        },
        "required": ["name", "parameters"],
        "additionalProperties": False,
    }


def chosen(tools: Sequence[Mapping[str, Any]], name: str) -> tuple[Mapping[str, Any], ...]:
    """The tools that a request's tool_choice leaves; all of them for ""."""
    return tuple(tool for tool in tools if not name or function_of(tool).get("name") == name)
