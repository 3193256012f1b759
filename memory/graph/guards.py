"""Checks on a candidate before it is registered: its sizes, its name, its code and its inputs.

No code runs here; it is only parsed. For any input the answer is a sentence, or "" if the candidate
passes. `checks` finds out which calls work.
"""

from __future__ import annotations

import ast
import json
import keyword
import re
import warnings
from collections.abc import Container, Mapping
from typing import Any

from memory.graph.naming import LONGEST_NAME
from memory.types import Tool
from toolwright.json_data import check_depth

_NAME = re.compile(rf"[A-Za-z_][A-Za-z0-9_]{{0,{LONGEST_NAME - 1}}}\Z")

DESCRIPTION, WORDS, CODE, SCHEMA, INPUT = 4096, 4096, 16_384, 16_384, 16_384
"""Characters of a description; of arguments or returns in words; of code; of a schema as JSON; of
one call's inputs."""
MOST_INPUTS = 8
_FILE = "<tool>"
warnings.filterwarnings("ignore", module=_FILE)  # a stranger's code may cause warnings

_PARTS = {"description": DESCRIPTION, "arguments": WORDS, "returns": WORDS, "code": CODE}


def refusal(tool: Tool, reserved: Container[str]) -> str:
    """Why the tool cannot be registered; "" if it can. reserved: names of tools that every
    session has."""
    return misnamed(tool.name, reserved) or _sizes(tool) or _inputs(tool) or _code(tool)


def shown(name: str) -> str:
    """A name from a stranger, shortened and escaped for a message."""
    return repr(name[:80])


def misnamed(name: str, reserved: Container[str] = ()) -> str:
    """Why no tool can have that name; "" if one can."""
    if not _NAME.match(name) or keyword.iskeyword(name):
        return (
            f"{shown(name)} is not a function name: letters, digits and _, at most "
            f"{LONGEST_NAME}, and not a keyword"
        )
    if name in reserved:
        return f"{name} is the name of a tool that every session has"
    return ""


def _sizes(tool: Tool) -> str:
    for part, most in _PARTS.items():
        text: str = getattr(tool, part)
        if len(text) > most:
            return f"its {part} has {len(text)} characters, at most {most} are allowed"
        if not _encodes(text) or "\0" in text:
            return f"its {part} has characters that UTF-8 cannot encode"
    if not tool.description.strip():
        return "it has no description, so nothing could find it"
    return _schema(tool.schema)


def _schema(schema: Mapping[str, Any]) -> str:
    try:
        check_depth(schema)
        text = json.dumps(schema, allow_nan=False)
        json.dumps(schema, ensure_ascii=False).encode()  # half a surrogate pair cannot be encoded
    except (TypeError, ValueError, RecursionError) as error:
        return f"its schema is not JSON: {error}"[:300]
    if len(text) > SCHEMA:
        return f"its schema has {len(text)} characters, at most {SCHEMA} are allowed"
    return ""


def _inputs(tool: Tool) -> str:
    if len(tool.inputs) > MOST_INPUTS:
        return f"it has {len(tool.inputs)} recorded inputs, at most {MOST_INPUTS} are allowed"
    for text in tool.inputs:
        if len(text) > INPUT:
            return f"recorded inputs have {len(text)} characters, at most {INPUT} are allowed"
        if not _object(text):
            return "recorded inputs are not a JSON object"
    return ""


def _code(tool: Tool) -> str:
    try:
        tree = ast.parse(tool.code, _FILE)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return f"its code does not parse: {error}"[:300]
    named = [node for node in tree.body if getattr(node, "name", None) == tool.name]
    if any(isinstance(node, ast.FunctionDef) for node in named):
        return ""
    if any(isinstance(node, ast.AsyncFunctionDef) for node in named):
        return f"its code defines {tool.name} as async, and no caller awaits it"
    return f"its code does not define a function {tool.name}"


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _object(text: str) -> bool:
    """Whether the text is a JSON object that a message can carry."""
    try:
        found = json.loads(text, parse_constant=_refuse)
        check_depth(found)
        json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict)


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")
