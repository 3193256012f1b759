"""The run folder: whether it takes files, who works in it, and what a start would go on from."""

from __future__ import annotations

import os
from pathlib import Path

from console.doctor.disk import nearest
from console.doctor.types import Check, Finding, Findings, Patient, ok, problem, warning

FOLDER = "run folder"
LOCKS = {
    "console/console.lock": "`toolwright run`",
    "journal.sqlite.lock": "an engine",
    "learner.lock": "a learner",
    "sft/learner.lock": "a learner (warm-up)",
}
"""File within the run folder, and who holds it."""
SHARED_SYSTEMS = ("nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "lustre", "beegfs", "ceph")


def run_folder(patient: Patient) -> Findings:
    assert patient.recipe is not None, "these checks are for a recipe"
    run = patient.recipe.run_folder
    if run.exists() and not run.is_dir():
        return [problem(FOLDER, f"{run} is a file", f"mv {run} {run}.old, or another run.folder")]
    at = nearest(run)
    if not os.access(at, os.W_OK | os.X_OK):
        mend = f"give this user rights in {at}, or choose another run.folder"
        return [problem(FOLDER, f"this user may not write in {at}", mend)]
    found = [*_held(run), *_system(at)]
    if not run.exists():
        return [*found, ok(FOLDER, f"{run} is not there yet and can be made")]
    newest = run / "checkpoints" / "latest"
    if (run / "final").is_dir():
        sentence = f"{run} holds a finished run: a start with more run.steps goes on with it"
        found.append(ok(FOLDER, sentence))
    elif newest.exists():
        found.append(ok(FOLDER, f"{run}: a start goes on from {_target(newest)}"))
    elif (run / "journal.sqlite").exists():
        found.append(ok(FOLDER, f"{run}: a start goes on with its journal, from step 0"))
    else:
        found.append(ok(FOLDER, f"{run} can be written"))
    return found


def _held(run: Path) -> Findings:
    """By whom the folder is held now. The kernel's own list: to try a lock would take it."""
    holders = _locked()
    found = []
    for name, who in LOCKS.items():
        try:
            inode = (run / name).stat().st_ino
        except OSError:
            continue
        if inode in holders:
            mend = f"toolwright status {run} shows it; toolwright stop {run} ends it"
            sentence = f"{who} (process {holders[inode]}) works in {run}"
            found.append(warning(FOLDER, sentence, mend))
    return found


def _locked() -> dict[int, int]:
    """Inode to process of every file that is locked on this machine."""
    held = {}
    try:
        lines = Path("/proc/locks").read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    for line in lines:
        # "3: FLOCK  ADVISORY  WRITE 4711 fd:00:263471 0 EOF"; "->" is one that waits.
        words = line.split()
        if len(words) < 6 or words[1] == "->":
            continue
        inode = words[5].rpartition(":")[2]
        if inode.isdecimal() and words[4].isdecimal():
            held[int(inode)] = int(words[4])
    return held


def _system(at: Path) -> Findings:
    kind = _file_system(at)
    if kind not in SHARED_SYSTEMS:
        return []
    sentence: Finding = warning(
        FOLDER,
        f"{at} is on {kind}: the engine's journal is a database that wants a local disk's locks",
        "put run.folder on a local disk, or keep engine and learner on one machine",
    )
    return [sentence]


def _file_system(at: Path) -> str:
    """The type of the mount that holds a folder; "" where the kernel does not tell."""
    try:
        lines = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    best, kind = "", ""
    for line in lines:
        words = line.split()
        if len(words) > 2 and at.is_relative_to(words[1]) and len(words[1]) >= len(best):
            best, kind = words[1], words[2]
    return kind


def _target(link: Path) -> str:
    """What `latest` names, a link or a file with a name."""
    try:
        return (
            link.resolve().name
            if link.is_symlink()
            else link.read_text(encoding="utf-8").strip()[:100]
        )
    except (OSError, ValueError):
        return "its newest checkpoint"


OF_RECIPE = (Check(subject=FOLDER, look=run_folder),)
