"""A new run from another run's weights: `engine serve RECIPE --fork RUN`."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from engine.errors import StartupError
from engine.serving.journal import facts
from engine.serving.journal.schema import FILE_NAME, open_read_only
from toolwright.types import WeightVersion


def fork_from(old_run_folder: Path, run_folder: Path) -> tuple[WeightVersion, Path]:
    """The newest weights of another run, which may be in progress, for a new run in `run_folder`.

    The new run begins at step 0 of a lineage of its own. Journals of older engines are read too.
    Raises StartupError if the new run has a journal already, or the old one has no weights.
    """
    old, new = old_run_folder / FILE_NAME, run_folder / FILE_NAME
    if new.exists():
        raise StartupError(
            f"--fork opens a new run, but {run_folder} has a journal: choose a new run.folder, or "
            "leave --fork out to go on with that run"
        )
    if not old.is_file():
        raise StartupError(f"--fork: no run in {old_run_folder}: there is no {FILE_NAME}")
    try:
        with closing(open_read_only(old, versions_only=True)) as db:
            newest = facts.newest_version(db)
    except sqlite3.Error as error:
        raise StartupError(f"--fork: the journal {old} cannot be read ({error})") from error
    if newest is None:
        raise StartupError(
            f"--fork: the run in {old_run_folder} has published no weights: start without --fork"
        )
    version, weights = newest
    if (weights / "adapter_config.json").is_file():
        raise StartupError(
            f"--fork: weights {version} of {old_run_folder} are adapters (run.publish_adapters): "
            f"set policy.model to {old_run_folder / 'final'}, where the learner left them merged"
        )
    if not (weights / "config.json").is_file():
        raise StartupError(
            f"--fork: weights {version} of {old_run_folder} are not in {weights} any more: restore "
            "them, or set policy.model to weights of your choice"
        )
    return version, weights
