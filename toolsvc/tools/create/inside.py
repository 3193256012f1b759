"""Runs in the sandbox, in a process of its own: makes a function of foreign code and calls it.

The source of this module is sent there with a job; it needs only the standard library. Its report
is not trusted: the foreign code can change this module, to its own harm.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import io
import json
import traceback
from collections.abc import Callable
from typing import Any

SHOWN = 4000  # characters of what was printed
LONGEST_RESULT = 65536  # characters of a result's JSON


class Wrong(Exception):
    """The code is not a tool; the message says why."""


def work(job: dict[str, Any]) -> str:
    """Report of the job as JSON: {"result", "required", "accepted", "stdout", "stderr"}, with
    "error" where it failed."""
    out, err = io.StringIO(), io.StringIO()
    told: dict[str, Any] = {"result": None}
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            function = make(job["code"], job["name"])
            told["required"], told["accepted"] = signature(function, job["name"], job["properties"])
            told["result"] = plain(function(**job["inputs"]))
        except Wrong as error:
            told["error"] = str(error)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code raises anything
            told["error"] = traceback.format_exception_only(type(error), error)[-1].strip()[:SHOWN]
    told["stdout"], told["stderr"] = out.getvalue()[:SHOWN], err.getvalue()[:SHOWN]
    return json.dumps(told)


def make(code: str, name: str) -> Callable[..., Any]:
    """The function of that name. Raises Wrong if the code does not parse, or defines none."""
    try:
        tree = ast.parse(code, "<tool>")
        program = compile(tree, "<tool>", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise Wrong(f"the code does not parse: {error}") from error
    if not any(isinstance(node, ast.FunctionDef) and node.name == name for node in tree.body):
        raise Wrong(f"the code does not define a function {name}")
    space: dict[str, Any] = {"__name__": name}
    exec(program, space)
    function: Callable[..., Any] = space[name]
    return function


def signature(
    function: Callable[..., Any], name: str, properties: list[str] | None
) -> tuple[list[str], list[str]]:
    """Names of the arguments that a call must have, and of all. properties: described names, None
    where nothing describes them one by one. Raises Wrong if they differ from the signature."""
    required = []
    accepted = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise Wrong(f"{name}: every argument needs a name, {parameter} has none")
        accepted[parameter.name] = parameter
        if parameter.default is parameter.empty:
            required.append(parameter.name)
    if properties is None:
        return required, list(accepted)
    for missing in sorted(set(required) - set(properties)):
        raise Wrong(f"{name} needs {missing}, which `arguments` does not describe")
    for extra in sorted(set(properties) - set(accepted)):
        raise Wrong(f"`arguments` describes {extra}, which {name} does not take")
    return required, list(accepted)


def plain(value: Any) -> Any:
    """The value as JSON has it. Raises Wrong if JSON cannot say it."""
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise Wrong(f"the result is no JSON: {error}") from error
    if len(text) > LONGEST_RESULT:
        raise Wrong(f"the result has {len(text)} characters, at most {LONGEST_RESULT} are allowed")
    return json.loads(text)
