"""`toolsvc call`: one action, as a policy would write it, and what the tool answers.

The observation goes to standard output, all else to standard error. A service that does not do what
it is asked is one sentence and exit code 1; a tool that failed has answered."""

from __future__ import annotations

import asyncio
import json
import mimetypes
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from google.protobuf.json_format import MessageToDict

from toolsvc.commands.endings import (
    Authority,
    Shown,
    ShownKey,
    UnusableWords,
    client_of,
    one_sentence,
)
from toolsvc.edge.client import Client
from toolsvc.plugin.tool import LEAST_RUN_LIMIT
from toolsvc.types import Media
from toolwright.common.v1 import reasons_pb2
from toolwright.json_data import read_exact
from toolwright.tool.v1 import tool_pb2 as pb

MOST_HINTED = 500
"""Characters of arguments that a hint repeats."""
_INVALID_ACTION = reasons_pb2.TOOL_ERROR_KIND_INVALID_ACTION


def call(
    address: Annotated[str, typer.Argument(help="host:port or unix:/path of the service")],
    tool: Annotated[str, typer.Argument(help="its name, as `toolsvc list ADDRESS` shows it")],
    action: Annotated[
        str | None,
        typer.Argument(
            help="what a policy would write; the body alone for a tool between tags; "
            "- or nothing: standard input"
        ),
    ] = None,
    arguments: Annotated[
        str | None, typer.Option(help="JSON object, instead of what the action would be read as")
    ] = None,
    metadata: Annotated[str, typer.Option(help="JSON object, of the session's task")] = "{}",
    media: Annotated[
        list[Path] | None,
        typer.Option(help="image, video or sound of the session's task; may be repeated"),
    ] = None,
    session: Annotated[
        str, typer.Option(help="go on in the session of this id, and leave it open for 10 minutes")
    ] = "",
    run_limit: Annotated[
        float | None, typer.Option(min=LEAST_RUN_LIMIT, help="seconds; default: the tool's own")
    ] = None,
    interactive: Annotated[
        bool, typer.Option("--interactive", "-i", help="one action after the other, until Ctrl-D")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print the whole result")] = False,
    tls_ca: Authority = None,
    tls_cert: Shown = None,
    tls_key: ShownKey = None,
) -> None:
    """Call a tool of a running service.

    toolsvc call 127.0.0.1:50061 python 'print(6 * 7)'

    Without --session the call has a session of its own, which is closed after it. TOOLWRIGHT_TOKEN
    is the bearer token.
    """
    with one_sentence(address):
        if interactive and (action is not None or arguments is not None):
            raise UnusableWords("--interactive reads actions itself: leave ACTION and --arguments")
        given = None if arguments is None else _object(arguments, "--arguments")
        asyncio.run(
            _call(
                client_of(address, tls_ca, tls_cert, tls_key),
                tool,
                _typed(f"{tool}> ") if interactive else _given(action, given is not None),
                given,
                metadata=_object(metadata, "--metadata"),
                media=[_read(path) for path in media or ()],
                session_id=session,
                run_limit=run_limit,
                as_json=as_json,
            )
        )


async def _call(
    client: Client,
    tool: str,
    actions: Iterable[str],
    arguments: Mapping[str, Any] | None,
    *,
    metadata: Mapping[str, Any],
    media: Sequence[Media],
    session_id: str,
    run_limit: float | None,
    as_json: bool,
) -> None:
    async with client:
        listed = {one.name: one for one in (await client.list_tools()).tools}
        # One that is made for each session is listed nowhere: then the session has all there are.
        tools = (tool,) if tool in listed else ()
        session = await client.open(
            tools, metadata, session_id, media=media, shared=bool(session_id)
        )
        try:
            if tool not in session.tools:
                known = ", ".join(session.tools) or "none"
                raise UnusableWords(f"there is no tool {tool!r} here, only {known}")
            for action in actions:
                result = await session.call(tool, action, arguments, run_limit=run_limit)
                if as_json:
                    print(json.dumps(MessageToDict(result, preserving_proto_field_name=True)))
                else:
                    _show(result)
                in_json = tool in listed and listed[tool].action_format.HasField("json_call")
                if in_json and arguments is None and result.error.kind == _INVALID_ACTION:
                    print(_hint(tool, action), file=sys.stderr)
        finally:
            if not session_id:
                await session.close()


def _hint(tool: str, action: str) -> str:
    """How the arguments of a tool that is called in JSON are given at a terminal."""
    try:
        is_object = isinstance(read_exact(action), dict)
    except ValueError:
        is_object = False
    shown = shlex.quote(action.strip()) if is_object and len(action) <= MOST_HINTED else "JSON"
    return (
        f"hint: {tool} is called in JSON, so an action is a whole <tool_call> block; for the "
        f"arguments alone use --arguments {shown}"
    )


def _object(text: str, option: str) -> dict[str, Any]:
    try:
        value = read_exact(text)
    except ValueError as error:
        raise UnusableWords(f"{option} {text}: not JSON ({error})") from None
    if not isinstance(value, dict):
        raise UnusableWords(f'{option} {text}: give a JSON object, such as {{"name": "value"}}')
    return value


def _read(path: Path) -> Media:
    media_type, _ = mimetypes.guess_type(path.name)
    if media_type is None:
        raise UnusableWords(f"--media {path}: the name does not tell what it is, as photo.png does")
    try:
        return Media(media_type=media_type, data=path.read_bytes())
    except OSError as error:
        raise UnusableWords(f"--media {path}: {error.strerror}") from None


def _given(action: str | None, has_arguments: bool) -> Iterator[str]:
    """The one action of the command line, or what standard input holds."""
    if action is None and has_arguments:
        yield ""
    else:
        text = sys.stdin.read() if action is None or action == "-" else action
        if not _is_text(text):
            raise UnusableWords("the action is no text: it has bytes that are not UTF-8")
        yield text


def _typed(prompt: str) -> Iterator[str]:
    """One action a line. A line that ends in ":" goes on until an empty one."""
    while True:
        try:
            lines = [input(prompt)]
            while lines[0].endswith(":") and lines[-1]:
                lines.append(input("... "))
        except EOFError:
            return
        if not _is_text("".join(lines)):
            print("that is no text: it has bytes that are not UTF-8", file=sys.stderr)
        elif lines[0]:
            yield "\n".join(lines)


def _is_text(words: str) -> bool:
    """Python reads bytes that are not UTF-8 as halves of surrogate pairs."""
    return words.isascii() or not any("\ud800" <= one <= "\udfff" for one in words)


def _show(result: pb.CallResult) -> None:
    text = "".join(map(_told, result.observation))
    if text:
        print(text, end="" if text.endswith("\n") else "\n", flush=True)
    print(", ".join(_facts(result)), file=sys.stderr)


def _told(part: pb.ObservationPart) -> str:
    kind = part.WhichOneof("content")
    if kind == "text":
        return part.text
    if kind == "media":
        return f"[{part.media.media_type}, {len(part.media.data)} bytes]"
    return f"[{part.blob.media_type}, {part.blob.size} bytes, sha256 {part.blob.sha256}]"


def _facts(result: pb.CallResult) -> Iterator[str]:
    """What the policy does not read."""
    if result.HasField("error"):
        kind = reasons_pb2.ToolErrorKind.Name(result.error.kind).removeprefix("TOOL_ERROR_KIND_")
        yield f"{kind}: {result.error.message}"
    if result.error.session_lost:
        yield "session lost"
    if result.done:
        yield "done"
    if result.HasField("reward"):
        yield f"reward {result.reward:g}"
    yield from (f"{name} {value:g}" for name, value in sorted(result.metrics.items()))
    if result.truncated:
        yield "truncated"
    yield f"queued {result.queued.ToMilliseconds()} ms"
    yield f"ran {result.run.ToNanoseconds() / 1e6:.1f} ms"
    if result.isolation:
        yield f"isolation {result.isolation}"
