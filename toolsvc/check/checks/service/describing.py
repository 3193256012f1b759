"""Descriptors: an engine needs them to stop generation, route calls and write a prompt."""

from __future__ import annotations

from collections.abc import Mapping

from toolsvc.check.check import check
from toolsvc.check.client import CheckClient
from toolsvc.check.connection import ask
from toolsvc.check.types import Rule, Skipped, expect
from toolwright.tool.v1 import tool_pb2 as pb

_TYPES = {"string", "integer", "number", "boolean", "array", "object", "null"}


async def _listed(client: CheckClient) -> pb.ListToolsResponse:
    return await ask(client.stub.ListTools, pb.ListToolsRequest())


@check(Rule.DESCRIBE)
async def tools_are_listed(client: CheckClient) -> None:
    """ListTools names the service and at least one tool, and repeated answers the same."""
    first, second = await _listed(client), await _listed(client)
    expect(first.service, "ListTools does not name the service")
    expect(first.tools, "ListTools lists no tool")
    expect(first == second, "a repeated ListTools had another answer")


@check(Rule.DESCRIBE)
async def names_are_unique_words(client: CheckClient) -> None:
    """Every tool has a unique name without blanks."""
    names = [tool.name for tool in (await _listed(client)).tools]
    expect(all(names), "a tool has no name")
    expect(not any(set(name) & set(" \t\n") for name in names), "a tool's name holds blanks")
    expect(len(set(names)) == len(names), f"two tools share a name: {', '.join(names)}")


@check(Rule.DESCRIBE)
async def tools_say_what_they_are_for(client: CheckClient) -> None:
    """Every tool has a description and a usage text for the prompt."""
    for tool in (await _listed(client)).tools:
        expect(tool.description.strip(), f"{tool.name} has no description")
        expect(tool.usage.strip(), f"{tool.name} has no usage text")


@check(Rule.DESCRIBE)
async def schemas_are_json_schemas(client: CheckClient) -> None:
    """The arguments' schema is a JSON Schema of an object, and has its required names."""
    # Without a validator of schemas: an engine reads only one level of a schema.
    for subject in client.subjects:
        name, schema = subject.name, subject.schema
        expect(schema.get("type") == "object", f"{name}: the schema's type is not `object`")
        properties = schema.get("properties", {})
        expect(isinstance(properties, Mapping), f"{name}: `properties` is not an object")
        required = schema.get("required", [])
        expect(isinstance(required, list), f"{name}: `required` is not a list")
        missing = [one for one in required if one not in properties]
        expect(not missing, f"{name}: `required` names {missing}, which `properties` lacks")
        for argument, inner in properties.items():
            expect(isinstance(inner, Mapping), f"{name}: the schema of {argument} is not an object")
            kind = inner.get("type", "object")
            kinds = kind if isinstance(kind, list) else [kind]
            unknown = [one for one in kinds if one not in _TYPES]
            expect(not unknown, f"{name}: {argument} has the unknown type {unknown}")


@check(Rule.DESCRIBE)
async def action_formats_are_whole(client: CheckClient) -> None:
    """The action format is a tag, a JSON call or raw. Marks are not empty, and the schema has the
    tag's argument."""
    for subject in client.subjects:
        form = subject.descriptor.action_format
        kind = form.WhichOneof("format")
        expect(kind, f"{subject.name} has no action format")
        if kind == "raw":
            continue
        marks = form.tag if kind == "tag" else form.json_call
        expect(marks.open and marks.close, f"{subject.name}: an empty mark in its {kind} format")
        if kind == "tag":
            expect(
                form.tag.argument in subject.arguments,
                f"{subject.name}: its tag's argument {form.tag.argument!r} is not in the schema",
            )


@check(Rule.DESCRIBE)
async def stop_strings_end_an_action(client: CheckClient) -> None:
    """No stop string is empty, and a stop string ends every closing mark."""
    for subject in client.subjects:
        stops = subject.descriptor.stop_strings
        expect(all(stops), f"{subject.name} has an empty stop string: nothing could be generated")
        form = subject.descriptor.action_format
        close = form.tag.close or form.json_call.close
        if close:
            expect(
                any(close.endswith(stop) for stop in stops),
                f"{subject.name}: no stop string ends with its closing mark {close!r}",
            )


@check(Rule.DESCRIBE)
async def run_limits_are_named(client: CheckClient) -> None:
    """Every tool names a default run limit above 0."""
    for subject in client.subjects:
        limit = subject.descriptor.default_run_limit.ToNanoseconds()
        expect(limit > 0, f"{subject.name}: its run limit is {limit / 1e9:g} s")


@check(Rule.DESCRIBE)
async def a_session_has_all_tools(client: CheckClient) -> None:
    """A session that names no tools has every listed tool with its listed description."""
    opened = await client.send_opening(client.opening())
    here = {tool.name: tool for tool in opened.tools}
    for tool in (await _listed(client)).tools:
        expect(tool.name in here, f"the session lacks the listed tool {tool.name}")
        found = here[tool.name]
        for field in ("action_format", "stop_strings", "parallel_calls", "stateful"):
            expect(
                getattr(found, field) == getattr(tool, field),
                f"ListTools and OpenSession differ in {field} of {tool.name}",
            )


@check(Rule.DESCRIBE)
async def a_session_has_the_tools_it_named(client: CheckClient) -> None:
    """A session that names one tool has that tool and no other listed tool."""
    if len(client.subjects) < 2:
        raise Skipped("the service has one tool")
    wanted, *others = client.subjects
    session = await client.open(wanted)
    names = {tool.name for tool in session.opened.tools}
    expect(wanted.name in names, f"the session lacks {wanted.name}, which it named")
    extra = sorted(names & {other.name for other in others})
    expect(not extra, f"the session has {', '.join(extra)}, which it did not name")
