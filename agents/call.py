"""The child process of `kind = "function"`: calls the function once, and writes its result."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agents.client import ClientSettings
from toolwright.imports import ImportPathError, load_object


def main() -> int:
    path, folder = sys.argv[1:3]
    try:
        function = load_object(path, Path(folder))
    except ImportPathError as error:
        print(f"task.agent.function: {error}", file=sys.stderr)
        return 1
    task = json.loads(Path(os.environ["TOOLWRIGHT_TASK"]).read_text(encoding="utf-8"))
    found = asyncio.run(function(task, ClientSettings.here()))
    result = result_of(found)
    Path(os.environ["TOOLWRIGHT_RESULT"]).write_text(json.dumps(result), encoding="utf-8")
    return 0


def result_of(found: Any) -> dict[str, Any]:
    """A result file's content for what a function returns: a mapping with its keys, the answer as a
    text, or None. Raises TypeError for another value."""
    if found is None:
        return {}
    if isinstance(found, str):
        return {"answer": found}
    if isinstance(found, Mapping):
        return dict(found)
    raise TypeError(
        f"the function returned {type(found).__name__}: return the answer as a text, a mapping "
        "with answer, reward and parts, or None"
    )


if __name__ == "__main__":
    sys.exit(main())
