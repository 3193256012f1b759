"""Whether a run's folder can be made and written, before anything is written there."""

from __future__ import annotations

import os
from pathlib import Path

FIX = "give this user rights and room there, or choose another run.folder"


def folder_fault(folder: Path) -> str:
    """Why a run cannot be kept in `folder`, with the fix; "" if it can. Writes nothing."""
    there = next(one for one in (folder, *folder.parents) if os.path.lexists(one))
    if not there.is_dir():
        return f"run.folder: {there} is a file: choose another run.folder, or move the file away"
    if not os.access(there, os.W_OK | os.X_OK) or _is_read_only(there):
        return f"run.folder: {there} cannot be written: {FIX}"
    return ""


def make_run_folder(folder: Path) -> str:
    """Makes the folder. Returns the same sentence if that fails, else ""."""
    if fault := folder_fault(folder):
        return fault
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return f"run.folder: {folder} cannot be made ({error.strerror}): {FIX}"
    return ""


def _is_read_only(folder: Path) -> bool:
    return bool(os.statvfs(folder).f_flag & os.ST_RDONLY)
