"""Probes: actions of a tool with an effect that the suite can observe.

A probe belongs to one tool. For each kind of action it has the text or the arguments. The suite
ships probes for the tools of Toolwright (probes.toml), and `--probe FILE` adds others. Without a
probe the suite checks only a tool's answers.

Invariant: the suite uses a probe only for a tool with all arguments that the probe names. Another
tool that is also called `echo` does not get actions that it does not know.
"""

from __future__ import annotations

import json
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

SHIPPED = Path(__file__).with_name("probes.toml")

Body = str | dict[str, Any]
"""The text of a tool's only argument, or all arguments by name."""


class Kind(StrEnum):
    """The observable effect of an action."""

    ECHO = "echo"
    """The observation holds @text@."""
    EFFECT = "effect"
    """The session's counter goes up by one."""
    READ = "read"
    """The first whole number of the observation is the session's counter."""
    SLEEP = "sleep"
    """Sleeps @seconds@; where the probe has an `effect`, the counter goes up by one at the end."""
    FAIL = "fail"
    """The tool runs and fails."""
    LONG = "long"
    """The observation has 400 KiB or more before any limit."""
    MEDIA = "media"
    """The observation holds an image, a sound or a video."""


class ProbeError(Exception):
    """A file of probes cannot be read. The message names file, place and fault."""


class Probe(BaseModel):
    """One tool's actions by kind; None if the tool has no such action."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    echo: Body | None = None
    effect: Body | None = None
    read: Body | None = None
    sleep: Body | None = None
    fail: Body | None = None
    long: Body | None = None
    media: Body | None = None
    foreign_code: bool = False
    """The tool runs the policy's code, so its answers must name the level of isolation."""
    metadata: dict[str, Any] = {}
    """The task's metadata, which the actions need."""

    def __contains__(self, kind: Kind) -> bool:
        return self._body(kind) is not None

    @property
    def kinds(self) -> list[Kind]:
        return [kind for kind in Kind if kind in self]

    def body(self, kind: Kind, *, text: str = "", seconds: float = 0.0) -> Body:
        """The action with its values filled in. Raises KeyError if the probe has no such action."""
        body = self._body(kind)
        if body is None:
            raise KeyError(kind)
        if isinstance(body, str):
            return _fill(body, text, seconds)
        return {name: _fill_value(value, text, seconds) for name, value in body.items()}

    def with_actions_of(self, other: Probe) -> Probe:
        """This probe with the fields that `other` sets."""
        return self.model_copy(update=other.model_dump(exclude_unset=True))

    def fits(self, arguments: set[str], *, raw: bool) -> bool:
        """Whether a tool with these arguments understands every action of the probe. `raw`: the
        tool accepts any text."""
        bodies = [self._body(kind) for kind in self.kinds]
        named = {name for body in bodies if isinstance(body, dict) for name in body}
        texts = any(isinstance(body, str) for body in bodies)
        return named <= arguments and (raw or not texts or len(arguments) == 1)

    def _body(self, kind: Kind) -> Body | None:
        found: Body | None = getattr(self, kind.value)
        return found


def load_probes(*paths: Path) -> dict[str, Probe]:
    """Probes by the tool's name: the shipped probes, then the files' probes in their order. Raises
    ProbeError if a file cannot be read."""
    probes: dict[str, Probe] = {}
    for path in (SHIPPED, *paths):
        try:
            tables = tomllib.loads(path.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise ProbeError(f"{path}: {error}") from error
        for name, probe in _probes(path, tables):
            probes[name] = probes.get(name, Probe()).with_actions_of(probe)
    return probes


def _probes(path: Path, tables: Mapping[str, Any]) -> Iterator[tuple[str, Probe]]:
    for name, table in tables.items():
        try:
            yield name, Probe.model_validate(table)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, (name, *first["loc"])))
            raise ProbeError(f"{path}: {place}: {first['msg']}") from error


def _fill(template: str, text: str, seconds: float) -> str:
    """@text@ is the text itself; @json@, @shell@ and @sql@ are literals of that language."""
    places = {
        "@seconds@": f"{seconds:g}",
        "@json@": json.dumps(text, ensure_ascii=False),
        "@shell@": shlex.quote(text),
        "@sql@": "'" + text.replace("'", "''") + "'",
        "@text@": text,
    }
    for place, value in places.items():
        if place in template:
            return template.replace(place, value)
    return template


def _fill_value(value: Any, text: str, seconds: float) -> Any:
    if value == "@seconds@":
        return seconds
    return _fill(value, text, seconds) if isinstance(value, str) else value
