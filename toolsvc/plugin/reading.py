"""Reads a call's tool and its arguments in the policy's text; the only place that does.

Invariants
- The outcome is arguments within the bounds of `json_bounds`, or an InvalidAction that the policy
  reads. Any other exception of a tool that reads an action becomes an InvalidAction too. Otherwise
  a policy could end its trajectory by an error of the service, and get another one.
- No tool runs while an action is read, so nothing has to be undone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from toolsvc.errors import Refused
from toolsvc.plugin.actions import RAW, InvalidAction, find_tool
from toolsvc.plugin.faults import log_fault
from toolsvc.plugin.tool import Tool
from toolsvc.types import Descriptor, RawFormat
from toolwright.reading.json_text.json_bounds import OutOfBounds, check_action, check_values


def tool_of_action(action: str, tools: Iterable[Descriptor], accepts: Callable[[str], bool]) -> str:
    """Name of the tool, as `find_tool` finds it. Raises InvalidAction."""
    with _reading("the session"):
        check_action(action)
        return find_tool(action, tools, accepts)


def arguments_of(
    tool: Tool, descriptor: Descriptor, action: str, given: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Arguments as `call` gets them. given: those that came as data; None = as the action has them.
    The one argument `action` of a raw format is read as the action itself. Raises InvalidAction."""
    with _reading(tool.name):
        check_action(action)
        if given is not None and isinstance(descriptor.format, RawFormat) and set(given) == {RAW}:
            action, given = str(given[RAW]), None
        found = tool.parse(action, descriptor) if given is None else given
        check_values(found)
        made = tool.make_arguments(found)
        tool.check_arguments(made)
        return made


@contextmanager
def _reading(name: str) -> Iterator[None]:
    try:
        yield
    except (InvalidAction, Refused):
        raise
    except OutOfBounds as error:
        raise InvalidAction(f"{name} cannot read the call: {error}") from error
    except Exception as error:
        log_fault(name, error)  # Its author should raise InvalidAction there.
        raise InvalidAction(f"{name} cannot read the call: {type(error).__name__}") from error
