"""An agent's environment and the file of its task. Pure.

An agent never gets a reward key, the engine's token, or other variables of the host.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agents.client import ClientSettings
from toolwright.types import Task

TASK, RESULT = "task.json", "result.json"
"""Files in an agent's folder: what it gets, and what it may leave."""

_PASSED = (
    *("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "PYTHONPATH", "VIRTUAL_ENV"),
    *("LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR"),
)
"""Variables of the host that an agent gets."""
_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
"""Variables whose files a jail hides. A client whose file is missing does not start, and the way to
the ingress needs none."""


def environment(
    client: ClientSettings,
    folder: Path,
    more: Mapping[str, str],
    host: Mapping[str, str],
    *,
    jailed: bool = False,
) -> dict[str, str]:
    """All variables of an agent. folder: its own. more: the recipe's. host: those of the host."""
    hidden = _CERTIFICATES if jailed else ()
    return {
        **{name: host[name] for name in _PASSED if name in host and name not in hidden},
        "PYTHONUNBUFFERED": "1",
        **more,
        **client.variables(),
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "PWD": str(folder),
        "TOOLWRIGHT_TASK": str(folder / TASK),
        "TOOLWRIGHT_RESULT": str(folder / RESULT),
    }


def task_data(task: Task) -> dict[str, Any]:
    """A task as an agent reads it, without its answers."""
    return {
        "id": task.id,
        "name": task.name,
        "data_source": task.data_source,
        "prompt": task.prompt,
        "messages": [dict(message) for message in task.messages],
        "metadata": dict(task.metadata),
    }
