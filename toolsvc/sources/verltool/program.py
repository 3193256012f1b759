"""A policy's Python as VerlTool's `python_code` runs it; pure.

There every action is a program of its own, in a folder of its own, behind a preamble of imports.
Its output comes first and its errors after it, and its lines are numbered with the preamble's. Here
our `python` tool runs such a program as a process of its session, and prints what it came to.
"""

from __future__ import annotations

SECONDS = 10
"""For the program."""
GRACE_SECONDS = 10.0
"""Beyond it, for its end to be told."""
BLOCKED = "Execution blocked: Code contains potentially dangerous operations or imports."

END = "."
"""After what it printed: our tool takes blanks at the end away, theirs some of them."""

_FIRST_LINE = 82
"""Of the policy's code: tracebacks tell it."""
_STARRED = (
    *("string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random"),
    *("statistics", "itertools", "functools", "operator", "io", "sys", "json"),
)
_NOT_IMPORTED = (
    *("subprocess", "multiprocessing", "threading", "socket", "psutil", "resource", "ctypes"),
)
_NOT_CALLED = (
    *("os.system", "os.popen", "os.spawn", "os.fork", "os.exec", "sys.exit", "os._exit"),
    "os.kill",
)
_RUNS = """\
import os, subprocess, sys, tempfile
def run(text, given, seconds):
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "main.py"), "w", encoding="utf-8") as file:
            file.write(text)
        start = {{"input": given.encode()}} if given else {{"stdin": subprocess.DEVNULL}}
        command = [sys.executable, os.path.join(folder, "main.py")]
        try:
            ended = subprocess.run(
                command, cwd=folder, capture_output=True, timeout=seconds, **start
            )
            said, late = (ended.stdout, ended.stderr), ""
        except subprocess.TimeoutExpired as error:
            said = (error.stdout or b"", error.stderr or b"")
            late = f"Execution timed out after {{seconds}} seconds.\\n"
        out, errors = (
            one.decode("utf-8", "replace").replace(f'File "{{folder}}/', 'File "') for one in said
        )
        print((out + "\\n" + errors + late).strip(" \\n") + {end!a})
run({text!a}, {given!a}, {seconds})
"""


def program(code: str, given: str) -> str:
    """What our `python` tool runs instead of `code`. `given`: standard input."""
    text = preamble() + code + "\n"
    return _RUNS.format(text=text, given=given, seconds=SECONDS, end=END)


def preamble() -> str:
    lines = [f"from {name} import *" for name in (*_STARRED, "builtins", "typing")]
    lines += [f"import {name}" for name in _STARRED]
    lines += ["sys.setrecursionlimit(600_000)", "import sys, os, io, ast"]
    return "\n".join(lines) + "\n" * (_FIRST_LINE - len(lines))


def blocked(code: str) -> bool:
    """Whether it is not run there."""
    return any(f"import {name}" in code or f"from {name}" in code for name in _NOT_IMPORTED) or any(
        name in code for name in _NOT_CALLED
    )
