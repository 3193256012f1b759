"""A run's folder before anything is written there: whether it can be made and written."""

from __future__ import annotations

import os
from pathlib import Path

MEND = "give this user rights and room there, or choose another run.folder"


def folder_fault(folder: Path) -> str:
    """Why a run cannot be kept in `folder`, with the mend; empty where it can. Writes nothing."""
    there = next(one for one in (folder, *folder.parents) if os.path.lexists(one))
    if not there.is_dir():
        return f"run.folder: {there} is a file: choose another run.folder, or move the file away"
    if not os.access(there, os.W_OK | os.X_OK) or _is_read_only(there):
        return f"run.folder: {there} cannot be written: {MEND}"
    return ""


def make_run_folder(folder: Path) -> str:
    """Makes it; the same sentence where it cannot be."""
    if fault := folder_fault(folder):
        return fault
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return f"run.folder: {folder} cannot be made ({error.strerror}): {MEND}"
    return ""


def _is_read_only(folder: Path) -> bool:
    return bool(os.statvfs(folder).f_flag & os.ST_RDONLY)
