"""Harbor task folders: tests/test.sh writes the reward, in a box that no agent has seen.

The layout is that of harbor-framework/harbor, as its documentation has it: tests/ is in /tests, and
the reward in /logs/verifier, as reward.txt or reward.json. The tests take 600 s by default there.

Of the agent's work, the working folder alone is carried over.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tasks.verifications.columns import (
    Options,
    Row,
    VerificationDraft,
    common_settings,
    id_of,
    image_of,
)
from toolwright.reading.task_rows.refusal import RowRefused
from toolwright.reading.task_rows.rows import first

HARBOR_IMAGE = "localhost/{id}"
REWARDS = ("/logs/verifier/reward.json", "/logs/verifier/reward.txt")
FOLDER = "/app"
"""Working folder of the tasks, unless the command names another."""
_SECONDS = 600.0
_HIDDEN = ("/tests", "/solution", "/oracle", "/logs/verifier")
_LAID = ".toolwright-tests"
_COMMAND = """\
rm -rf /tests && mv {laid} /tests || exit 1
{variables}bash /tests/test.sh
"""
_BETWEEN = re.compile(r"[^\w.-]+")
"""What is between the names that a solution mentions."""
_NAME = re.compile(r"[A-Za-z_]\w*")


def harbor(row: Row, options: Options) -> VerificationDraft:
    """Raises RowRefused."""
    id = id_of(row, ("id",))
    folder = options.folder or FOLDER
    if row.get("workdir") != folder:
        named = row.get("workdir") or "not named in the Dockerfile (WORKDIR)"
        raise RowRefused("another_folder", f"its folder is {named}: serve it apart (--folder)")
    rule = HARBOR_IMAGE if row.get("builds") else ""
    names = set(_BETWEEN.split(str(row.get("solution", ""))))
    # The tests' folder becomes /tests whole, and pytest imports from there first.
    settings = common_settings(names, _HIDDEN, [f"{_LAID}/*"])
    return VerificationDraft(
        id=id,
        settings={
            "image": image_of(options, str(row.get("image") or ""), rule, id=id.lower()),
            "command": _COMMAND.format(laid=_LAID, variables=_variables(row)),
            "report": "reward_files",
            "reward_files": list(REWARDS),
            "seconds": options.seconds or _seconds(row),
            **settings,
            "hide_history": False,
        },
        folders={_LAID: Path(str(row["tests"]))},
    )


def _seconds(row: Row) -> float:
    found = first(row, ("task.verifier.timeout_sec",))
    if isinstance(found, int | float) and not isinstance(found, bool) and found > 0:
        return float(found)
    return _SECONDS


def _variables(row: Row) -> str:
    """Lines of bash for [verifier.env]."""
    found: Any = first(row, ("task.verifier.env",))
    if not isinstance(found, Mapping):
        return ""
    for name, value in found.items():
        if not _NAME.fullmatch(name) or "${" in str(value):
            raise RowRefused(
                "not_played_here", f"verifier.env.{name} is taken from the host: write its value"
            )
    return "".join(f"export {name}={shlex.quote(str(one))}\n" for name, one in found.items())
