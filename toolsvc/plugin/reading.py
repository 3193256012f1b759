"""What a policy wrote becomes a call's tool and its arguments: here, whatever the tool, and nowhere
else.

Invariants
- What comes out is arguments within `bounds`, or an InvalidAction, which the policy reads. Whatever
  else a tool raises while it reads an action is an InvalidAction too: a policy must not be able to
  end its trajectory by an error of the service, and be given another one.
- No tool runs while an action is read, so nothing has to be undone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import structlog

from toolsvc.errors import Refused
from toolsvc.plugin.actions import InvalidAction, find_tool
from toolsvc.plugin.tool import Tool
from toolsvc.types import Descriptor
from toolwright.reading.json_text.json_bounds import OutOfBounds, check_action, check_values

_MOST_LOGGED = 256
_LOGGED: set[tuple[str, str]] = set()
"""What was told of a tool: a policy may make the same fault all day."""

log = structlog.get_logger(__name__)


def tool_of_action(action: str, tools: Iterable[Descriptor], accepts: Callable[[str], bool]) -> str:
    """As `find_tool`. InvalidAction."""
    with _reading("the session"):
        check_action(action)
        return find_tool(action, tools, accepts)


def arguments_of(
    tool: Tool, descriptor: Descriptor, action: str, given: Mapping[str, Any] | None
) -> dict[str, Any]:
    """As `call` gets them. `given`: those that came as data; None = as the action has them.
    InvalidAction."""
    with _reading(tool.name):
        check_action(action)
        found = tool.parse(action, descriptor) if given is None else given
        check_values(found)
        return tool.check(found)


@contextmanager
def _reading(name: str) -> Iterator[None]:
    try:
        yield
    except (InvalidAction, Refused):
        raise
    except OutOfBounds as error:
        raise InvalidAction(f"{name} cannot read the call: {error}") from error
    except Exception as error:
        _log(name, error)
        raise InvalidAction(f"{name} cannot read the call: {type(error).__name__}") from error


def _log(name: str, error: Exception) -> None:
    """For the tool's author: it should have been an InvalidAction there."""
    key = (name, type(error).__name__)
    if key not in _LOGGED and len(_LOGGED) < _MOST_LOGGED:
        _LOGGED.add(key)
        log.warning("tool cannot read an action", tool=name, exc_info=error)
