"""One .zip with what a bug report needs, and no secrets in it.

Every text passes `console.redact`. Weights, the journal, checkpoints and published policies are
never in it; texts of tasks and answers only on request. Logs may quote a text: a program that
refuses a row may print it.

Invariants
- Bounded: MOST_LINES of each log, MOST_BYTES of each file, MOST_FILES of a kind, MOST_TOGETHER.
- Links are not followed out of the run folder, and nothing but plain files is opened.
- The archive appears whole or not at all, readable by its owner alone.
"""

from __future__ import annotations

import json
import os
import stat
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import groupby, islice
from pathlib import Path
from typing import Any

from console.asked.setup import Setup
from console.doctor.types import Finding, Patient
from console.machine.versions import everything
from console.record.lines import json_object
from console.record.resolved import RESOLVED
from console.redact import Redactor, is_secret, redactor
from toolwright.recipe.layers import LayerError, read_layers

MOST_LINES = 2000
FEW_LINES = 200
MOST_BYTES = 2 << 20
"""Maximum bytes of one file, from its end."""
MOST_FILES = 60
MOST_TOGETHER = 16 << 20
"""Characters of all texts; what comes after them is named and left out."""
MOST_LISTED = 2000
LISTS = (
    (("console/course.jsonl",), "what `toolwright run` did", MOST_LINES),
    (
        ("learner.jsonl", "evaluations.jsonl", "sft/sft.jsonl"),
        f"the last {FEW_LINES} rows",
        FEW_LINES,
    ),
    (
        ("*.log", "engine.jsonl", "console/logs/*.log", "console/logs/*.jsonl"),
        f"the last {MOST_LINES} lines",
        MOST_LINES,
    ),
)
"""(patterns of files, what they are, maximum lines)."""
TEXTS = (("samples.jsonl",), "texts of evaluated trajectories", FEW_LINES)
SAFE_VARIABLES = (
    *("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "TORCH_COMPILE_DISABLE"),
    *("TOKENIZERS_PARALLELISM", "HF_HUB_OFFLINE", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TERM"),
    *("PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "PYTHONOPTIMIZE", "GRPC_VERBOSITY"),
    *("WANDB_MODE", "NCCL_DEBUG", "NCCL_SOCKET_IFNAME", "SLURM_JOB_NUM_NODES", "container"),
    "TOOLWRIGHT_SAMPLER_THREADS",
)
"""Environment variables whose values are bundled; of all others the names."""


def write_bundle(
    file: Path, patient: Patient, found: Sequence[Finding], *, with_texts: bool
) -> list[tuple[str, str]]:
    """Writes the archive and returns its content as (name, what it is). Raises OSError, also if
    the file exists."""
    clean = redactor(patient.environment)
    inside: list[tuple[str, str]] = []
    left = MOST_TOGETHER
    handle, new = tempfile.mkstemp(dir=file.absolute().parent, prefix=f".{file.name}.")
    try:
        with (
            os.fdopen(handle, "wb") as out,
            zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive,
        ):
            for name, what, text in _parts(patient, found, clean, with_texts=with_texts):
                archive.writestr(name, text)
                inside.append((name, what))
                left -= len(text)
                if left < 0:
                    inside.append(("...", "the rest is left out, the bundle is full"))
                    break
        # The name is taken first: a file that came meanwhile is not replaced.
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        Path(new).replace(file)
    finally:
        Path(new).unlink(missing_ok=True)
    return inside


def _parts(
    patient: Patient, found: Sequence[Finding], clean: Redactor, *, with_texts: bool
) -> Iterator[tuple[str, str, str]]:
    """(name, what it is, redacted text) of each file of the archive."""

    def data(name: str, what: str, value: Any) -> tuple[str, str, str]:
        return name, what, json.dumps(clean.data(value), indent=1, default=str)

    yield data("doctor.json", "findings of the doctor", [asdict(one) for one in found])
    yield data("versions.json", "versions and the machine", everything())
    variables = {
        name: value if name in SAFE_VARIABLES and not is_secret(name) else "(not shown)"
        for name, value in sorted(patient.environment.items())
    }
    yield data("environment.json", "names of variables, values of harmless ones", variables)
    if patient.setup is None:
        return
    path, run = patient.setup.recipe.path, patient.setup.run
    yield "recipe.toml", "the recipe", clean.text("\n".join(tail(path, MOST_BYTES)))
    yield data("recipe.json", "the recipe with what it extends and --set", _layers(patient.setup))
    if not run.is_dir():
        return
    yield data("files.json", "sizes of the run folder's files", _sizes(run))
    for file in _files(run, RESOLVED):
        if (values := json_object("\n".join(tail(file, MOST_BYTES)).encode())) is not None:
            yield data(f"run/{file.name}", "settings of a process", values)
    for patterns, what, most in (*LISTS, TEXTS) if with_texts else LISTS:
        for file in islice(_files(run, patterns), MOST_FILES):
            text = "\n".join(_clean_lines(tail(file, most), clean))
            yield f"run/{clean.text(str(file.relative_to(run)))}", what, text


def _layers(setup: Setup) -> dict[str, Any]:
    """All layers of the recipe as one table."""
    path = setup.recipe.path
    try:
        tables: Any = read_layers(path).tables
    except (OSError, LayerError) as error:
        tables = str(error)
    return {"path": str(path), "set": list(setup.overrides), "tables": tables}


def _clean_lines(lines: Sequence[str], clean: Redactor) -> Iterator[str]:
    """JSON lines as data, so that a secret's name finds its value; others together, as a key may
    span several of them."""
    rows = [(json_object(line.encode()), line) for line in lines]
    for is_text, group in groupby(rows, key=lambda row: row[0] is None):
        if is_text:
            yield clean.text("\n".join(line for _, line in group))
        else:
            yield from (json.dumps(clean.data(row), default=str) for row, _ in group)


def _files(run: Path, patterns: Sequence[str]) -> Iterator[Path]:
    """Plain files within the folder, by name; a link out of it could be anything."""
    for pattern in patterns:
        for path in sorted(run.glob(pattern)):
            inside = path.resolve().is_relative_to(run.resolve())
            if inside and stat.S_ISREG(path.lstat().st_mode):
                yield path


def tail(path: Path, most: int) -> list[str]:
    """The last lines of a file, of MOST_BYTES at most; a line that is cut off is left out."""
    try:
        with path.open("rb") as file:
            begin = max(0, file.seek(0, os.SEEK_END) - MOST_BYTES)
            file.seek(begin)
            data = file.read(MOST_BYTES)
    except OSError as error:
        return [f"(it cannot be read: {error.strerror})"]
    if begin:
        data = data.partition(b"\n")[2]
    return data.decode(errors="replace").splitlines()[-most:]


def _sizes(run: Path) -> dict[str, int]:
    """Bytes of the first MOST_LISTED files."""
    paths = (Path(folder, name) for folder, _, names in os.walk(run) for name in names)
    return {str(one.relative_to(run)): one.lstat().st_size for one in islice(paths, MOST_LISTED)}
