"""`python -m bench.history FILE`: judges a stored history again.

Exit code 0 if every invariant holds, 1 if one is broken, 2 for a file that is not a history.
"""

from __future__ import annotations

import sys
from pathlib import Path

from bench.history.events import Finished
from bench.history.findings import HistoryError
from bench.history.stored import read_history
from bench.history.validator import unjudged, validate


def main(arguments: list[str]) -> int:
    """Prints the verdict; returns the exit code."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print("usage: python -m bench.history FILE", file=sys.stderr)
        return 2
    try:
        history = read_history(Path(arguments[0]))
        violation, without = validate(history), unjudged(history)
    except (HistoryError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    print(violation or f"{len(history)} events, no invariant is broken")
    if not any(isinstance(event, Finished) for event in history):
        print("the history has no event Finished: is the file cut?")
    if without:
        print(f"not judged, for want of events: {', '.join(without)}")
    return 0 if violation is None else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
