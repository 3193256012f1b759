"""A Harbor task folder as a row: task.toml, instruction.md, environment/, tests/, solution/.

A row has the texts that decide how a task is played. The tests themselves stay in their folder. A
task that cannot be played here is a RowRefused, which names the setting.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from toolwright.reading.task_rows.refusal import RowRefused

TASK_FILE = "task.toml"
_MOST_BYTES = 1 << 20
"""Largest text file of a task folder that is read, in bytes."""
_DEPTH = 3
"""Deepest place of a task folder below the set's folder."""
_ROOT_USERS = ("", "root", "0")
_REFUSED = (
    ("steps", "several steps: a task here has one"),
    ("environment.mcp_servers", "MCP servers: serve them as tools of the recipe"),
    ("environment.healthcheck", "a health check: a box starts no services"),
    ("environment.gpus", "GPUs: a box has none"),
    ("environment.tpu", "TPUs: a box has none"),
    ("environment.env", "variables: set them in the image, with ENV"),
    ("environment.allowed_hosts", "a network: a box has none"),
    ("agent.allowed_hosts", "a network: a box has none"),
    ("verifier.environment", "an image for the verifier alone: give both boxes one image"),
    ("verifier.collect", "commands after the agent: do it in tests/test.sh"),
    ("artifacts", "files besides the working folder: only that is carried over"),
)
"""Keys that a task must leave out or leave empty, and why."""


def task_files(folder: Path) -> list[Path]:
    """The task.toml of each task folder at `folder` or below, in the order of their names."""
    places = ("/".join([*["*"] * depth, TASK_FILE]) for depth in range(_DEPTH + 1))
    found = (path for place in places for path in folder.glob(place))
    return sorted(path for path in found if path.is_file())


def task_row(file: Path) -> dict[str, Any] | RowRefused:
    """The row of the folder of a task.toml. Raises OSError if a file cannot be read."""
    try:
        return _row(file)
    except RowRefused as refused:
        return refused


def _row(file: Path) -> dict[str, Any]:
    folder = file.parent
    try:
        task = tomllib.loads(_text(file))
    except tomllib.TOMLDecodeError as error:
        raise RowRefused("no_toml", f"{TASK_FILE}: {error}") from error
    for key, why in _REFUSED:
        if _at(task, key):
            raise RowRefused("not_played_here", f"{key} asks for {why}")
    if str(_at(task, "environment.os") or "linux") != "linux":
        raise RowRefused("not_played_here", "environment.os is not linux")
    for key in ("agent.user", "verifier.user"):
        if str(_at(task, key) or "") not in _ROOT_USERS:
            raise RowRefused("not_played_here", f"{key} is not root: a box runs commands as root")
    if (folder / "environment" / "docker-compose.yaml").exists():
        raise RowRefused("not_played_here", "docker-compose.yaml: a box is one container")
    instruction = _text(folder / "instruction.md")
    script = _text(folder / "tests" / "test.sh")
    for path, text in (("instruction.md", instruction), ("tests/test.sh", script)):
        if not text.strip():
            raise RowRefused("no_file", f"{path} is missing or empty")
    dockerfile = _text(folder / "environment" / "Dockerfile")
    return {
        "id": folder.name,
        "instruction": instruction,
        "task": task,
        "image": str(_at(task, "environment.docker_image") or ""),
        "builds": bool(dockerfile),
        "workdir": str(_at(task, "environment.workdir") or workdir_of(dockerfile)),
        "solution": "\n".join(_solution(folder / "solution")),
        "tests": str(folder.absolute() / "tests"),
    }


def workdir_of(dockerfile: str) -> str:
    """The working folder of the image that a Dockerfile builds; "" if its base image decides.

    Raises RowRefused for what a box would not do: start an entry point, or run as another user.
    """
    folder = ""
    for word, rest in _instructions(dockerfile):
        if word == "FROM":
            folder = ""
        elif word == "WORKDIR":
            folder = str(PurePosixPath(folder or "/", rest.strip("\"'")))
        elif word == "ENTRYPOINT":
            raise RowRefused("not_played_here", "Dockerfile: ENTRYPOINT, which a box does not run")
        elif word == "USER" and rest.partition(":")[0] not in _ROOT_USERS:
            raise RowRefused("not_played_here", f"Dockerfile: USER {rest}: a box needs root")
    return folder


def _instructions(dockerfile: str) -> Iterator[tuple[str, str]]:
    lines = (line for line in dockerfile.split("\n") if not line.lstrip().startswith("#"))
    for line in "\n".join(lines).replace("\\\n", " ").split("\n"):
        word, *rest = line.split(maxsplit=1)[:2] or [""]
        yield word.upper(), "".join(rest).strip()


def _solution(folder: Path) -> Iterator[str]:
    """The texts of a recorded solution."""
    for path in sorted(folder.glob("**/*")):
        yield path.name
        if path.is_file() and not path.is_symlink() and path.stat().st_size <= _MOST_BYTES:
            yield path.read_bytes().decode("utf-8", "replace")


def _text(path: Path) -> str:
    """ "" without the file. A link is not followed: the folder may be a stranger's."""
    if path.is_symlink() or not path.is_file():
        return ""
    if path.stat().st_size > _MOST_BYTES:
        raise RowRefused("too_long", f"{path.name} has more than {_MOST_BYTES} bytes")
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise RowRefused("not_utf_8", f"{path.name}: {error}") from error


def _at(task: Mapping[str, Any], key: str) -> Any:
    found: Any = task
    for name in key.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found
