"""What the sets share: options of the command, the verification itself, and columns of rows. Pure.

A row that makes no verification is refused with RowRefused, whose kind is for counting.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from tasks.errors import NotMade
from toolwright.reading.patches import changed_paths
from toolwright.reading.task_rows.data import data_in
from toolwright.reading.task_rows.refusal import RowRefused
from toolwright.reading.task_rows.rows import first, holds

Row = Mapping[str, Any]

_ID = re.compile(r"\w[\w.:/+-]{0,400}")
_PROTECTED = (
    *("conftest.py", "tox.ini", "setup.cfg", "pyproject.toml"),
    *("pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml"),
    *("sitecustomize.py", "usercustomize.py", "*.pth", "*.egg-link"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """image: template of an image's name, "" for the set's own rule. seconds: limit of the tests, 0
    for the set's own. scripts: the folder of a set whose scripts are files beside its rows. folder:
    the repositories' folder in the images, "" for the set's own."""

    image: str = ""
    seconds: float = 0.0
    scripts: Path | None = None
    folder: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationDraft:
    """A verification. settings: of verification.toml. patch: of the tests, "" without one.
    files: contents by path within the repository. folders: folders that are copied there, by
    path."""

    id: str
    settings: Mapping[str, Any]
    patch: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    folders: Mapping[str, Path] = field(default_factory=dict)


def id_of(row: Row, columns: Iterable[str]) -> str:
    """The name of the folder, as the tasks of `tasks convert` name it."""
    found = first(row, columns)
    if not isinstance(found, str) or not _ID.fullmatch(found) or ".." in PurePosixPath(found).parts:
        raise RowRefused("no_id", f"no id ({', '.join(columns)})")
    return found


def text_of(row: Row, *columns: str) -> str:
    """The first of the columns that holds a text, "" without one."""
    found = first(row, columns)
    return found if isinstance(found, str) and found.strip() else ""


def tests_of(row: Row, *columns: str) -> list[str]:
    """A list of tests, also where a text holds it as JSON or as Python prints it."""
    found = first(row, columns)
    if not holds(found):
        return []
    if isinstance(found, str):
        try:
            found = data_in(found)
        except ValueError:
            raise RowRefused("no_list", f"{columns[0]} is no list of tests") from None
    found = found.tolist() if hasattr(found, "tolist") else found
    if not isinstance(found, list | tuple) or not all(isinstance(one, str) for one in found):
        raise RowRefused("no_list", f"{columns[0]} is no list of tests")
    return list(dict.fromkeys(found))


def image_of(options: Options, named: str, rule: str, **values: str) -> str:
    """By the operator's template, else the row's own, else by the set's rule. The last two are on
    Docker Hub. Raises NotMade for a template with names that the set does not have, RowRefused
    without any image."""
    if named and not options.image:
        return _on_docker_hub(named)
    if not (options.image or rule):
        raise RowRefused("no_image", "no image: give its rule with --image")
    try:
        return options.image.format(**values) or _on_docker_hub(rule.format(**values))
    except (KeyError, IndexError, ValueError) as error:
        names = ", ".join(f"{{{name}}}" for name in values)
        raise NotMade(f"--image {options.image!r}: the set has {names} ({error})") from None


def _on_docker_hub(image: str) -> str:
    """The whole name: podman asks no registry for a short one, unless it is configured to."""
    host, slash, _ = image.partition("/")
    qualified = slash and ("." in host or ":" in host or host == "localhost")
    return image if qualified else f"docker.io/{image}"


def names_of_id(id: str) -> dict[str, str]:
    """An instance's id as registries spell it."""
    low = id.lower()
    return {
        "id": id,
        "id_1776": low.replace("__", "_1776_"),
        "id_s": low.replace("__", "_s_"),
    }


def changed_by(patch: str) -> list[tuple[str, str]]:
    """(path before, path after) of each file of a patch. Raises RowRefused if they cannot be
    read."""
    try:
        return changed_paths(patch)
    except ValueError as error:
        raise RowRefused("no_patch", str(error)) from None


def common_settings(
    gold: Iterable[str], hidden: Iterable[str], more: Iterable[str] = ()
) -> dict[str, Any]:
    """What every published set needs. gold: files that the recorded fix changes, which a submission
    may then change too. hidden: the set's own. more: patterns of further protected files."""
    names = {PurePosixPath(path).name for path in gold}
    return {
        "edited_tests": "replaced",
        "hidden": [*hidden, ".pytest_cache"],
        "hide_history": True,
        "protected": [
            pattern
            for pattern in (*_PROTECTED, *more)
            if not any(PurePosixPath(name).match(pattern) for name in names)
        ],
    }
