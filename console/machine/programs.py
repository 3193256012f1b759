"""Asks another program of this installation, bounded: `engine`, `toolsvc`, a Python."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

MOST_CHARACTERS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """status: None where it was ended for its time, or could not be started."""

    status: int | None
    out: str
    error: str

    @property
    def last_line(self) -> str:
        """Last line of its standard error, else of its output."""
        lines = self.error.strip().splitlines() or self.out.strip().splitlines()
        return lines[-1].strip() if lines else ""


def ask(
    argv: Sequence[str],
    *,
    seconds: float,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Said:
    """Runs a program to its end, in `folder` or here; its input is a pipe that has ended. What it
    started ends with it."""
    try:
        with subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            cwd=folder,
            env=None if environment is None else dict(environment),
        ) as process:
            try:
                out, error = process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                process.terminate()
                try:
                    process.communicate(timeout=5)
                except subprocess.TimeoutExpired:
                    process.kill()
                return Said(status=None, out="", error=f"no answer in {seconds:.0f} s")
    except OSError as failure:
        return Said(status=None, out="", error=str(failure))
    return Said(
        status=process.returncode, out=out[-MOST_CHARACTERS:], error=error[-MOST_CHARACTERS:]
    )


def module(name: str, *words: str) -> tuple[str, ...]:
    """The command line of a module of this installation, such as engine.cli."""
    # -P: a file of the user's that is called engine.py is not our engine.
    return (sys.executable, "-P", "-m", name, *words)
