"""The policy's request and the checks on it; pure. `inside` makes the checks that need the code to
run."""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, Field

from toolsvc.plugin.tool import STRICT
from toolsvc.schemas.lint import MOST_CHARACTERS, schema_faults
from toolsvc.schemas.validation import BadSchema, check_schema, closed
from toolwright.reading.json_text.json_bounds import OutOfBounds, read_json
from toolwright.reading.tool_arguments import LONGEST_WORDS, in_words, schemas

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}\Z")


class Arguments(BaseModel):
    """Arguments of `create_and_execute`."""

    model_config = STRICT

    name: str = Field(description="the tool's name, and the function's")
    description: str = Field(max_length=1000, description="what the tool does")
    arguments: dict[str, Any] | str = Field(
        description='JSON schema of each argument by name: {"n": {"type": "integer"}}; or words: '
        '"a, b (int)"'
    )
    returns: str = Field(default="", max_length=1000, description="what it returns")
    code: str = Field(
        max_length=16_384, description="Python that defines the function; imports included"
    )
    inputs: dict[str, Any] = Field(description="arguments of a first call, by name")
    timeout: float | None = Field(default=None, gt=0, description="seconds of a call")


class NotMade(ValueError):
    """The tool is not made; the message says why."""


def check_name(name: str, taken: Collection[str]) -> None:
    """Raises NotMade if no tool can have that name."""
    if not _NAME.match(name) or keyword.iskeyword(name):
        raise NotMade(f"{name[:80]!r} is no name of a function")
    if name in taken:
        raise NotMade(f"there is a tool {name!r} already: choose another name")


def check_count(made: int, most: int) -> None:
    """Raises NotMade if the session has made the maximum of tools."""
    if made >= most:
        raise NotMade(f"{made} tools were made, the most that one session may make")


def words_of(arguments: Mapping[str, Any] | str) -> str | None:
    """The description of the arguments where it is free text. Raises NotMade if that is too
    long."""
    words = in_words(arguments)
    if words is not None and len(words) > LONGEST_WORDS:
        raise NotMade(
            f"`arguments` has {len(words)} characters, at most {LONGEST_WORDS} are allowed"
        )
    return words


def schema_of_words(words: str, names: Sequence[str], inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of arguments that are described in words. names: those of the function; inputs: of
    a call that worked."""
    return closed({"type": "object", "properties": schemas(words, names, inputs)})


def schema_of(arguments: Mapping[str, Any] | str) -> dict[str, Any]:
    """The schema of the arguments, from one of the whole or of each by name. Raises NotMade."""
    if isinstance(arguments, str):
        try:
            arguments = read_json(arguments or "{}")
        except OutOfBounds as error:
            raise NotMade(f"`arguments` is no JSON: {error}") from error
    if not isinstance(arguments, Mapping):
        raise NotMade("`arguments` is no JSON object")
    whole = isinstance(arguments.get("properties"), Mapping) and "type" in arguments
    schema: dict[str, Any] = dict(arguments)
    if not whole:
        schema = {"type": "object", "properties": schema}
    if schema["type"] != "object":
        raise NotMade("`arguments` must be the schema of an object")
    for name, inner in schema["properties"].items():
        if not isinstance(inner, Mapping):
            raise NotMade(f"`arguments.{name}` is no JSON schema")
    if len(json.dumps(schema)) > MOST_CHARACTERS:
        raise NotMade(f"`arguments` has more than {MOST_CHARACTERS} characters")
    for fault in schema_faults("arguments", schema, patterns=False):
        raise NotMade(fault)
    try:
        check_schema(schema)
    except BadSchema as error:
        raise NotMade(f"`arguments` is no JSON schema: {error}") from error
    return closed(schema)
