"""A tool under test: its descriptor, its probe, and its actions as text; pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from toolsvc.check.probe import Body, Kind, Probe
from toolwright import wire
from toolwright.tool.v1 import tool_pb2 as pb

_SAMPLES: Mapping[str, Any] = {
    "string": "1",
    "integer": 0,
    "number": 0,
    "boolean": False,
    "array": [],
    "object": {},
}
"""A value for each type of argument."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One tool of the service."""

    descriptor: pb.ToolDescriptor
    probe: Probe

    @property
    def name(self) -> str:
        return self.descriptor.name

    @property
    def schema(self) -> dict[str, Any]:
        return wire.mapping(self.descriptor.arguments_schema)

    @property
    def properties(self) -> Mapping[str, Any]:
        """Schemas of the arguments by name; empty if the schema has no such object."""
        properties = self.schema.get("properties")
        return properties if isinstance(properties, Mapping) else {}

    @property
    def arguments(self) -> set[str]:
        """Names of the arguments in the schema."""
        return set(self.properties)

    @property
    def is_raw(self) -> bool:
        """Whether any text is an action of the tool."""
        return self.descriptor.action_format.WhichOneof("format") == "raw"

    def action(self, kind: Kind | None = None, *, text: str = "", seconds: float = 0.0) -> str:
        """The text of an action as a policy writes it. `kind` None: any action of the tool."""
        if kind is None:
            kind = next((one for one in (Kind.ECHO, Kind.READ) if one in self.probe), None)
            text = text or "toolsvc check"
        if kind is None:
            return self.written(self._sample())
        return self.written(self.probe.body(kind, text=text, seconds=seconds))

    def written(self, body: Body) -> str:
        """A text or arguments by name, in the tool's action format."""
        form = self.descriptor.action_format
        if form.HasField("tag"):
            text = body if isinstance(body, str) else str(body.get(form.tag.argument, ""))
            return f"{form.tag.open}{text}{form.tag.close}"
        if form.HasField("json_call"):
            if isinstance(body, str):
                body = {name: body for name in sorted(self.arguments)[:1]}
            call = json.dumps({"name": self.name, "arguments": body}, ensure_ascii=False)
            return f"{form.json_call.open}{call}{form.json_call.close}"
        return body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)

    def _sample(self) -> Body:
        if self.descriptor.action_format.HasField("json_call"):
            return {name: _sample_of(schema) for name, schema in self.properties.items()}
        return "1"


def subject_of(descriptor: pb.ToolDescriptor, probes: Mapping[str, Probe]) -> Subject:
    """The tool with the probe of its name, or with an empty probe if that does not fit."""
    bare = Subject(descriptor=descriptor, probe=Probe())
    probe = probes.get(descriptor.name)
    raw = descriptor.action_format.HasField("raw")
    if probe is None or not probe.fits(bare.arguments, raw=raw):
        return bare
    return Subject(descriptor=descriptor, probe=probe)


def _sample_of(schema: Any) -> Any:
    if not isinstance(schema, Mapping):
        return "1"
    if schema.get("enum"):
        return schema["enum"][0]
    return _SAMPLES.get(str(schema.get("type")), "1")
