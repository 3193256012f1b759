"""`toolsvc list`: what `toolsvc serve` can be told and its options, or what a running service says
of its own tools.

A service that does not answer is one sentence on standard error and exit code 1."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, get_args, get_origin

import typer
from google.protobuf.json_format import MessageToDict
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from toolsvc.built_in import BUILT_IN, NoOptions, built_in
from toolsvc.client import Client
from toolsvc.commands.endings import Authority, client_of, one_sentence
from toolsvc.errors import StartError
from toolsvc.sources import SOURCES, source
from toolwright.tool.v1 import tool_pb2 as pb


def list_tools(
    address: Annotated[
        str, typer.Argument(help="host:port or unix:/path of a service; none: what can be served")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
    tls_ca: Authority = None,
) -> None:
    """List built-in tools, sources and their options, or the tools of a running service.

    TOOLWRIGHT_TOKEN is the bearer token.
    """
    console = Console()
    if not address:
        words = [*map(_built_in, BUILT_IN), *map(_source, SOURCES)]
        if as_json:
            print(json.dumps(words, indent=2))
        else:
            _show_words(console, words)
        return
    with one_sentence(address):
        answer = asyncio.run(_ask(client_of(address, tls_ca)))
    if as_json:
        print(json.dumps(MessageToDict(answer, preserving_proto_field_name=True), indent=2))
    else:
        _show_served(console, answer)


async def _ask(client: Client) -> pb.ListToolsResponse:
    async with client:
        return await client.list_tools()


def _built_in(name: str) -> dict[str, Any]:
    try:
        kind = built_in(name)
    except StartError as error:
        return _described(name, name, f"({error})")
    return _described(name, name, kind.description, kind.Options)


def _source(name: str) -> dict[str, Any]:
    try:
        kind = source(name)
    except StartError as error:
        return _described(name, f"{name}:...", f"({error})")
    return _described(name, f"{name}:{kind.where}", kind.description, kind.Options)


def _described(
    name: str, word: str, description: str, options: type[BaseModel] = NoOptions
) -> dict[str, Any]:
    """`name`: what `--set` begins with. `word`: what `toolsvc serve` is given."""
    shown = list(_options(options))
    return {"name": name, "word": word, "description": description, "options": shown}


def _options(model: type[BaseModel], table: str = "") -> Iterator[dict[str, Any]]:
    """Those of a table within the options by their dotted names; they are required only where
    something of the table is given."""
    for name, field in model.model_fields.items():
        kinds = (field.annotation, *get_args(field.annotation))
        inner = next((one for one in kinds if _is_model(one)), None)
        if inner is not None:
            yield from _options(inner, f"{table}{name}.")
        else:
            option = _option(table + name, field)
            yield {**option, "required": option["required"] and not table}


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _option(name: str, field: FieldInfo) -> dict[str, Any]:
    default = None if field.is_required() else field.get_default(call_default_factory=True)
    if isinstance(default, Enum | Path):
        default = str(default)
    return {
        "name": name,
        "type": _type_name(field.annotation),
        "required": field.is_required(),
        "default": default,
        "description": field.description or "",
    }


def _type_name(kind: Any) -> str:
    """The type in the words of a command line."""
    if isinstance(kind, UnionType):
        return " or ".join(_type_name(one) for one in get_args(kind) if one is not NoneType)
    if get_origin(kind) is dict:
        return f"table of {_type_name(get_args(kind)[1])}"
    if get_origin(kind) is tuple:
        return f"list of {_type_name(get_args(kind)[0])}"
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "|".join(str(member.value) for member in kind)
    names = {
        str: "text",
        SecretStr: "text",
        int: "whole number",
        float: "number",
        bool: "true|false",
    }
    return names.get(kind, getattr(kind, "__name__", str(kind)).lower())


def _show_words(console: Console, words: list[dict[str, Any]]) -> None:
    for word in words:
        console.print(_heading(word["word"], word["description"]))
        if not word["options"]:
            continue
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for column in ("--set", "type", "default", ""):
            table.add_column(column, overflow="fold")
        for option in word["options"]:
            default = "required" if option["required"] else _written(option["default"])
            table.add_row(
                *map(Text, (f"{word['name']}.{option['name']}", option["type"], default)),
                Text(option["description"]),
            )
        console.print(table)


def _written(value: object) -> str:
    """A default as it would be typed."""
    if value is None or value in ("", (), [], {}):
        return "none"
    return value if isinstance(value, str) else json.dumps(value)


def _show_served(console: Console, answer: pb.ListToolsResponse) -> None:
    console.print(Text(answer.service), end="\n\n")
    for tool in answer.tools:
        limit = tool.default_run_limit.ToNanoseconds() / 1e9
        console.print(_heading(tool.name, tool.description))
        facts = (_action(tool), *_traits(tool), f"run limit {limit:g} s")
        console.print(Text("  " + ", ".join(facts)), end="\n\n", soft_wrap=True)


def _action(tool: pb.ToolDescriptor) -> str:
    form = tool.action_format
    if form.HasField("tag"):
        return f"{form.tag.open} {form.tag.argument} {form.tag.close}"
    if form.HasField("json_call"):
        names = ", ".join(tool.arguments_schema.fields["properties"].struct_value.fields)
        return f"JSON call: {names}"
    return tool.usage.partition("\n")[0]


def _traits(tool: pb.ToolDescriptor) -> Iterator[str]:
    yield "stateful" if tool.stateful else "stateless"
    if tool.parallel_calls:
        yield "parallel"
    if tool.capabilities.media:
        yield "with media"


def _heading(name: str, description: str) -> Text:
    return Text.assemble((name, "bold"), "  ", description)
