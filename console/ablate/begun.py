"""What a run of the ladder was begun with, RUN/console/ablate.json: another recipe is another run.

Invariants
- A run that has made a step is gone on with, or taken as done, only under the values that it was
  begun with; more run.steps is the exception.
- A run that was begun otherwise, by `toolwright run`, is taken as it is.
"""

from __future__ import annotations

import json
from pathlib import Path

from console.ablate.changes import Changes, Values, changes
from console.ablate.ladder import Rung
from console.atomic import put
from console.errors import ConsoleError, NothingStarted
from console.record.course import FOLDER
from console.record.files import IMITATION, STEPS

FILE = f"{FOLDER}/ablate.json"
BUDGET = "run.steps"
LARGEST = 4 << 20


def check(rung: Rung) -> None:
    """NothingStarted where its run was begun with other values."""
    for key, (was, is_) in another(rung).items():
        raise NothingStarted(
            f"{rung.folder} was begun with {key} = {was or 'nothing'}, and it is {is_ or 'nothing'}"
            " now: what it came to is another recipe's. Name another --folder, move that run away, "
            f"or remove {rung.folder / FILE} to take it as it is"
        )


def another(rung: Rung) -> Changes:
    """Values that its run was begun with and that are others now; empty where it may go on."""
    before = noted(rung.folder)
    if before is None or not any((rung.folder / sign).is_file() for sign in (STEPS, IMITATION)):
        return {}
    found = dict(changes(before, rung.learning))
    if BUDGET in found and int(found[BUDGET][0] or 0) < int(found[BUDGET][1]):
        del found[BUDGET]
    return found


def note(rung: Rung) -> None:
    """Leaves the values for the next start. ConsoleError."""
    file = rung.folder / FILE
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        put(file, json.dumps(rung.learning, indent=1))
    except OSError as error:
        raise ConsoleError(
            f"{file} cannot be written ({error.strerror}): give this user rights and room there"
        ) from error


def noted(run: Path) -> Values | None:
    """None for a run that was begun otherwise, or whose file says nothing."""
    try:
        with (run / FILE).open("rb") as file:
            found = json.loads(file.read(LARGEST))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not all(isinstance(one, str) for one in found.values()):
        return None
    return found
