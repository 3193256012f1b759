"""Finds the call in the text of an action, as R2E-Gym's agents write it; pure.

    <function=execute_bash>
    <parameter=command>python3 -m unittest</parameter>
    </function>

The block that ends last counts. Names that R2E-Gym's and OpenHands' prompts have used for the same
function or parameter are understood too.
"""

from __future__ import annotations

from typing import Any

from toolsvc.plugin.actions import InvalidAction, last_block
from toolsvc.tools.function_call import CLOSING, OPENING, parse_function

_FUNCTIONS = {
    "file_editor": "file_editor",
    "str_replace_editor": "file_editor",
    "execute_bash": "execute_bash",
    "bash": "execute_bash",
    "search": "search",
    "submit": "submit",
    "finish": "submit",
}
_PARAMETERS = {"cmd": "command", "query": "search_term"}
_IGNORED = {
    "file_editor": ("concise", "python_only"),
    "search": ("python_only",),
    "submit": ("command", "result", "message"),
}
"""Parameters that a prompt may name and that change nothing here."""


def find_call(action: str) -> dict[str, Any]:
    """Arguments, not yet checked against `SweArguments`. Raises InvalidAction if there is no
    block."""
    name, given = parse_function(last_block(action, OPENING, CLOSING))
    function = _FUNCTIONS.get(name)
    if function is None:
        wanted = ", ".join(dict.fromkeys(_FUNCTIONS.values()))
        raise InvalidAction(f"there is no function {name!r}, only {wanted}")
    ignored = _IGNORED.get(function, ())
    found = {_PARAMETERS.get(key, key): text for key, text in given.items() if key not in ignored}
    if function == "file_editor" and "command" in found:
        found["command"] = str(found["command"]).removesuffix("_edit")
    return {"function": function, **found}
