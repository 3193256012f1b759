"""`toolsvc list`: the words that `toolsvc serve` takes, with their options; the tools of a Python
file; or the tools of a running service.

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

from toolsvc.commands.endings import Authority, Shown, ShownKey, client_of, one_sentence
from toolsvc.edge.client import Client
from toolsvc.errors import StartError
from toolsvc.plugin.registry import SOURCES, TOOLS, registered, tool_class
from toolsvc.plugin.tool import NoConfig
from toolsvc.sandbox.config import SandboxConfig
from toolsvc.sources.elsewhere import source
from toolsvc.sources.loader import make_from_file, no_such_word, tools_in_file
from toolwright import wire
from toolwright.text.schemas import in_order
from toolwright.tool.v1 import tool_pb2 as pb


def list_tools(
    address: Annotated[
        str,
        typer.Argument(
            metavar="NAME|FILE|ADDRESS",
            help="a registered tool or a source, a Python file that defines tools, or host:port or "
            "unix:/path of a service; none: all that can be served",
        ),
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
    tls_ca: Authority = None,
    tls_cert: Shown = None,
    tls_key: ShownKey = None,
) -> None:
    """List registered tools and sources with their options, or the tools of a file or service.

    TOOLWRIGHT_TOKEN is the bearer token.
    """
    console = Console()
    words: list[dict[str, Any]] = []
    with one_sentence():
        if address.endswith(".py") and not address.startswith("unix:"):
            words = _file(Path(address))
        elif ":" not in address and "/" not in address:
            words = _words(address)
    if words:
        if as_json:
            print(json.dumps(words, indent=2))
            return
        if not address:
            _show_overview(console, words)
        _show_words(console, words)
        return
    with one_sentence(address):
        answer = asyncio.run(_ask(client_of(address, tls_ca, tls_cert, tls_key)))
    if as_json:
        print(json.dumps(MessageToDict(answer, preserving_proto_field_name=True), indent=2))
    else:
        _show_served(console, address, answer)


async def _ask(client: Client) -> pb.ListToolsResponse:
    async with client:
        return await client.list_tools()


def _file(path: Path) -> list[dict[str, Any]]:
    """Tools of a file. Raises StartError for a file that cannot be served. A tool with a required
    option is not made."""
    found = tools_in_file(path)
    for tool in found:
        if not any(field.is_required() for field in tool.Config.model_fields.values()):
            make_from_file(path, tool, {}, SandboxConfig())
    return [_described(tool.name, tool.name, tool.description, tool.Config) for tool in found]


def _words(name: str) -> list[dict[str, Any]]:
    """All that can be served, or what has that name. Raises StartError for an unknown name."""
    tools, sources = registered(TOOLS), registered(SOURCES)
    if name and name not in {*tools, *sources}:
        raise no_such_word(name, "the address of a service (host:port)")
    return [
        *(_tool(one) for one in tools if name in ("", one)),
        *(_source(one) for one in sources if name in ("", one)),
    ]


def _tool(name: str) -> dict[str, Any]:
    try:
        kind = tool_class(name)
    except StartError as error:
        return _described(name, name, f"({error})")
    return _described(name, name, kind.description, kind.Config)


def _source(name: str) -> dict[str, Any]:
    try:
        kind = source(name)
    except StartError as error:
        return _described(name, f"{name}:...", f"({error})")
    return _described(name, f"{name}:{kind.where}", kind.description, kind.Config)


def _described(
    name: str, word: str, description: str, options: type[BaseModel] = NoConfig
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


def _show_overview(console: Console, words: list[dict[str, Any]]) -> None:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("toolsvc serve", no_wrap=True)
    table.add_column("", overflow="fold")
    for word in words:
        sentence, _, _ = word["description"].partition(". ")
        table.add_row(Text(word["word"], style="bold"), Text(sentence.rstrip(".")))
    console.print(table)


def _show_words(console: Console, words: list[dict[str, Any]]) -> None:
    for word in words:
        console.print(_heading(word["word"], word["description"]))
        if not word["options"]:
            continue
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column(
            "--set", no_wrap=True
        )  # a name that is broken can be neither copied nor found
        for column in ("type", "default", ""):
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


def _show_served(console: Console, address: str, answer: pb.ListToolsResponse) -> None:
    console.print(Text(answer.service), end="\n\n")
    if not answer.tools:
        by_hand = f"toolsvc call {address} NAME --metadata '{{...}}' --arguments '{{...}}'"
        console.print(Text(f"its tools are made for each session: {by_hand}"), soft_wrap=True)
    for tool in answer.tools:
        limit = tool.default_run_limit.ToNanoseconds() / 1e9
        console.print(_heading(tool.name, tool.description))
        facts = (_action(tool), *_traits(tool), f"run limit {limit:g} s")
        console.print(Text("  " + ", ".join(facts)), soft_wrap=True)
        if tool.action_format.HasField("json_call"):
            given = ", ".join(f'"{name}": ...' for name in _arguments(tool))
            by_hand = f"toolsvc call {address} {tool.name} --arguments '{{{given}}}'"
            console.print(Text(f"  at a terminal: {by_hand}"), soft_wrap=True)
        console.print()


def _action(tool: pb.ToolDescriptor) -> str:
    form = tool.action_format
    if form.HasField("tag"):
        return f"{form.tag.open} {form.tag.argument} {form.tag.close}"
    if form.HasField("json_call"):
        return tool.usage.partition("\n")[0] or f"JSON call: {', '.join(_arguments(tool))}"
    return tool.usage.partition("\n")[0]


def _arguments(tool: pb.ToolDescriptor) -> list[str]:
    """Their names."""
    return list(in_order(wire.mapping(tool.arguments_schema)).get("properties", {}))


def _traits(tool: pb.ToolDescriptor) -> Iterator[str]:
    yield "stateful" if tool.stateful else "stateless"
    if tool.parallel_calls:
        yield "parallel"
    if tool.capabilities.media:
        yield "with media"


def _heading(name: str, description: str) -> Text:
    return Text.assemble((name, "bold"), "  ", description)
