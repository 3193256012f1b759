"""What a run, and each thing that it makes first, depends on: keys of the recipe, files of code.

A start notes its settings in the course, a maker beside its mark. A later start compares: what is
used though it was made from other settings is said, and so is what differs on a resume.

Values are short texts, the same for equal values. Where a run listens and how long it is are no
settings: they change nothing that is learnt.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from console.asked.plan import Maker
from console.asked.setup import Setup
from console.record.changes import HASH
from console.record.resolved import dotted
from toolwright.imports import recorded

LONGEST = 80
"""Characters of a value that are kept; a longer one is cut and has its hash."""
MOST_FILES = 200
MOST_BYTES = 64 << 20
"""Size of a file up to which its content counts; of a larger one its size does."""
_NO_SETTINGS = (
    *("run.name", "run.folder", "run.steps", "run.engine", "run.traces", "sampler.endpoints"),
    *("memory.address", "console.", "engine.listen", "engine.metrics_port", "engine.history"),
)
"""Keys, and beginnings of keys."""


def settings_of(setup: Setup) -> dict[str, str]:
    """Dotted keys of the recipe with their values, and `FILE.py` with a hash of each code file of
    the recipe's folder."""
    recipe = setup.recipe
    tables = {name: table for name, table in recipe.raw.items() if name != "extends"}
    found = {
        key: _short(_recorded(value))
        for key, value in dotted(tables)
        if not key.startswith(_NO_SETTINGS) and not re.fullmatch(r"tools\..*\.service", key)
    }
    return found | _hashes(sorted(recipe.folder.glob("*.py")))


def made_from(setup: Setup, maker: Maker) -> dict[str, str]:
    """Settings that a maker reads, and hashes of the files that it is given."""
    recipe = setup.recipe
    if maker.kind == "prepare":
        words = [word.replace("{seed}", str(setup.seed)) for word in maker.run]
        command = {f"{maker.where} run": _short(shlex.join(words))}
        return command | _hashes([recipe.folder / word for word in words])
    tables: dict[str, object] = {maker.kind: recipe.raw.get(maker.kind, {})}
    if maker.kind == "render":
        for name in ("task", "tasks"):
            table = recipe.raw.get(name, {})
            if name == "task":
                tables["task"] = _protocol(table)
            elif isinstance(table, Mapping):
                tables["tasks"] = {one: _protocol(own) for one, own in table.items()}
        if template := recipe.raw.get("policy", {}).get("template"):
            tables["policy"] = {"template": template}
    found = {
        key: _short(_recorded(value))
        for name, table in tables.items()
        if table
        for key, value in dotted({name: table})
    }
    return found | _hashes([need.path for need in maker.needs])


def _protocol(table: object) -> dict[str, object]:
    if not isinstance(table, Mapping):
        return {}
    return {name: table[name] for name in ("protocol", "protocol_options") if name in table}


def _hashes(paths: Sequence[Path]) -> dict[str, str]:
    """Name to hash of the files among the paths."""
    files = [path for path in paths if path.is_file()]
    return {file.name: _hash(file) for file in files[:MOST_FILES]}


def _hash(file: Path) -> str:
    """Hash of the content, or a large file's size."""
    try:
        size = file.stat().st_size
        if size > MOST_BYTES:
            return f"{HASH}{size} bytes"
        with file.open("rb") as opened:
            return f"{HASH}{hashlib.file_digest(opened, 'sha256').hexdigest()[:16]}"
    except OSError:
        return f"{HASH}unreadable"


def _recorded(value: str) -> str:
    """A value as JSON, import paths in the spelling that runs record."""
    return f'"{recorded(value[1:-1])}"' if value.startswith('"') else value


def _short(text: str) -> str:
    if len(text) <= LONGEST:
        return text
    return f"{text[: LONGEST - 20]}... {hashlib.sha256(text.encode()).hexdigest()[:12]}"
