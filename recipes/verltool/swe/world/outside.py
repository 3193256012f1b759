"""Asks the code under test from outside: part of every verification, laid beside its tests.

The code runs in a process of its own. What it prints, how it exits and what it patches there has no
part in the report, which the process of the tests writes.
"""

import json
import secrets
import subprocess
import sys

SECONDS = 20
ASK = "import json, sys; sys.path.insert(0, '.'); from {module} import *; " + (
    "sys.stdout.write({mark!r} + json.dumps({expression}))"
)


def value_of(module: str, expression: str) -> object:
    """What an expression about the names of a module is worth, as JSON has it. CalledProcessError
    where it raises, TimeoutExpired after 20 s, ValueError where the process said nothing."""
    mark = secrets.token_hex(16)
    code = ASK.format(module=module, expression=expression, mark=mark)
    asked = subprocess.run(
        [sys.executable, "-I", "-c", code],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True, timeout=SECONDS,
    )  # fmt: skip
    return json.loads(asked.stdout.partition(mark)[2])
