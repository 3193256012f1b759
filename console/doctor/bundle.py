"""One .zip with what a bug report needs, and no secrets in it.

Every text passes `console.redact`. Weights, the journal, checkpoints and published policies are
never in it; texts of tasks and answers only where they are asked for. Logs may quote a text: what
a program says of a broken row is in them.

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
from itertools import islice
from pathlib import Path
from typing import Any

from console.doctor.types import Finding, Patient
from console.machine.versions import machine, sampler_versions, versions
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
LOGS = ("*.log", "engine.jsonl", "console/logs/*.log", "console/logs/*.jsonl")
ROWS = ("learner.jsonl", "evaluations.jsonl", "sft/sft.jsonl")
TEXTS = ("samples.jsonl",)
COURSE = "console/course.jsonl"
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
    """Writes the archive and returns what is in it: (name, what it is). OSError."""
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
        _named(Path(new), file)
    finally:
        Path(new).unlink(missing_ok=True)
    return inside


def _named(new: Path, file: Path) -> None:
    """Gives it the name; a file of that name that came meanwhile is not replaced. OSError."""
    try:
        os.link(new, file)
    except FileExistsError:
        raise
    except OSError:
        # A file system without hard links: the name is taken first.
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        new.replace(file)


def _parts(
    patient: Patient, found: Sequence[Finding], clean: Redactor, *, with_texts: bool
) -> Iterator[tuple[str, str, str]]:
    """(name, what it is, redacted text) of each file of the archive."""
    yield _data("doctor.json", "what the doctor found", [asdict(one) for one in found], clean)
    told = versions() | sampler_versions() | machine()
    yield _data("versions.json", "versions and the machine", told, clean)
    variables = _variables(patient)
    yield _data("environment.json", "names of variables, values of harmless ones", variables, clean)
    if patient.recipe is None:
        return
    yield from _recipe(patient, clean)
    run = patient.recipe.run_folder
    if not run.is_dir():
        return
    yield _data("files.json", "sizes of the run folder's files", _sizes(run), clean)
    for name in RESOLVED:
        if (data := _json(run / name)) is not None:
            yield _data(f"run/{name}", "what a process ran with", data, clean)
    lists = [
        ((COURSE,), "what `toolwright run` did", MOST_LINES),
        (ROWS, f"the last {FEW_LINES} rows", FEW_LINES),
        (LOGS, f"the last {MOST_LINES} lines", MOST_LINES),
    ]
    if with_texts:
        lists.append((TEXTS, "texts of evaluated trajectories", FEW_LINES))
    for patterns, what, most in lists:
        for path in islice(_files(run, patterns), MOST_FILES):
            text = "\n".join(_clean_lines(tail(path, most), clean))
            yield f"run/{clean.text(str(path.relative_to(run)))}", what, text


def _recipe(patient: Patient, clean: Redactor) -> Iterator[tuple[str, str, str]]:
    """The recipe's own text, and all its layers as one table."""
    assert patient.recipe is not None, "the caller looked"
    path = patient.recipe.path
    try:
        yield (
            "recipe.toml",
            "the recipe",
            clean.text(path.read_text(errors="replace", encoding="utf-8")[:MOST_BYTES]),
        )
        tables = read_layers(path).tables
    except (OSError, LayerError):
        return
    data = {"path": str(path), "set": list(patient.overrides), "tables": tables}
    yield _data("recipe.json", "the recipe with what it extends and what was set", data, clean)


def _data(name: str, what: str, data: Any, clean: Redactor) -> tuple[str, str, str]:
    return name, what, json.dumps(clean.data(data), indent=1, default=str)


def _variables(patient: Patient) -> dict[str, str]:
    return {
        name: value if name in SAFE_VARIABLES and not is_secret(name) else "(not shown)"
        for name, value in sorted(patient.environment.items())
    }


def _clean_lines(lines: Sequence[str], clean: Redactor) -> Iterator[str]:
    """JSON lines as data, so that a secret's name finds its value; others together, as keys may go
    over several of them."""
    texts: list[str] = []
    for line in lines:
        data = _parsed(line)
        if isinstance(data, dict):
            if texts:
                yield clean.text("\n".join(texts))
                texts = []
            yield json.dumps(clean.data(data), default=str)
        else:
            texts.append(line)
    if texts:
        yield clean.text("\n".join(texts))


def _parsed(line: str) -> Any:
    if not line.startswith("{"):
        return None
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _files(run: Path, patterns: Sequence[str]) -> Iterator[Path]:
    """Plain files within the folder, by name; a link out of it could be anything."""
    for pattern in patterns:
        for path in sorted(run.glob(pattern)):
            if _is_plain(path) and path.resolve().is_relative_to(run.resolve()):
                yield path


def _is_plain(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def tail(path: Path, most: int) -> list[str]:
    """The last lines of a file, of MOST_BYTES at most; a line that is cut off is left out."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            begin = max(0, size - MOST_BYTES)
            file.seek(begin)
            data = file.read(MOST_BYTES)
    except OSError as error:
        return [f"(it cannot be read: {error.strerror})"]
    if begin:
        data = data.partition(b"\n")[2]
    return data.decode(errors="replace").splitlines()[-most:]


def _json(path: Path) -> Any:
    if not _is_plain(path):
        return None
    try:
        with path.open("rb") as file:
            return json.loads(file.read(MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return None


def _sizes(run: Path) -> dict[str, int]:
    """Bytes of the first MOST_LISTED files, and of the rest together."""
    sizes: dict[str, int] = {}
    rest = 0
    for folder, _, names in os.walk(run):
        for name in names:
            path = Path(folder, name)
            try:
                size = path.lstat().st_size
            except OSError:
                continue
            if len(sizes) < MOST_LISTED:
                sizes[str(path.relative_to(run))] = size
            else:
                rest += size
    return {**sizes, **({"(more)": rest} if rest else {})}
