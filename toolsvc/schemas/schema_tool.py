"""A tool that is called in JSON and whose arguments are known by a JSON Schema alone, as those are
that come from elsewhere: no class of ours says what they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

from toolsvc.plugin.actions import InvalidAction
from toolsvc.plugin.tool import Tool, json_call_usage
from toolsvc.schemas.validation import Matcher
from toolsvc.types import Descriptor, JsonCallFormat


class SchemaTool(Tool):
    format = JsonCallFormat()
    schema: Mapping[str, Any]
    """Of the arguments, an object's."""
    output_schema: Mapping[str, Any] | None = None

    @cached_property
    def matcher(self) -> Matcher:
        """Of the arguments. BadSchema."""
        return Matcher(self.schema)

    def describe(self) -> Descriptor:
        names = self.schema.get("properties", {})
        return replace(
            super().describe(),
            usage=self.usage or json_call_usage(self.name, self.description, names),
            arguments_schema=self.schema,
            output_schema=self.output_schema,
        )

    def make_arguments(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return dict(arguments)

    def check_arguments(self, arguments: Mapping[str, Any]) -> None:
        found = self.matcher.violations(arguments)
        if found:
            faults = "; ".join(f"{one.path}: {one.rule} {one.expected}" for one in found)
            raise InvalidAction(f"{self.name}: {faults}")
