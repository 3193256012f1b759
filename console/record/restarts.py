"""How often a tool service ended by itself, by the engine's log."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from console.record.lines import LONGEST_LINE, json_object
from console.record.run import ENGINE_LOG
from toolwright.reading.files import open_regular

MOST_BYTES = 1 << 28
"""Maximum bytes of the log that are read."""
MOST_NAMES = 100
LONGEST_NAME = 100
_EVENT = b"tool_service_ended"


def tool_restarts(folder: Path) -> dict[str, int]:
    """Ends by the name of the service, those of all lives of the engine. Raises OSError."""
    file = folder / ENGINE_LOG
    found: Counter[str] = Counter()
    if not file.is_file():
        return found
    read = 0
    with open_regular(file) as log:
        while read < MOST_BYTES and (line := log.readline(LONGEST_LINE)):
            read += len(line)
            if _EVENT not in line:
                continue
            row = json_object(line) or {}
            name = row.get("service")
            known = isinstance(name, str) and (name in found or len(found) < MOST_NAMES)
            if known and row.get("event") == _EVENT.decode():
                found[str(name)[:LONGEST_NAME]] += 1
    return found
