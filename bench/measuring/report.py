"""The report of an instrument: its rows, and what they were measured on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, Self, TypeVar

from console.machine.versions import machine, versions


class JsonRow(Protocol):
    """A row of a report."""

    def to_json(self) -> dict[str, Any]: ...


R = TypeVar("R", bound=JsonRow)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(Generic[R]):
    """Rows of one run of an instrument. Its JSON has `rows`, `machine`, `versions` and the keys of
    `about`."""

    rows: Sequence[R]
    machine: dict[str, str]
    """Value by name."""
    versions: dict[str, str]
    """Version by package."""
    about: dict[str, Any] = field(default_factory=dict)
    """Figures of the whole run."""

    @classmethod
    def of(cls, rows: Sequence[R], packages: Sequence[str], **about: Any) -> Self:
        """The report of rows that were measured on this machine. packages: those that the figures
        depend on."""
        return cls(rows=rows, machine=machine(), versions=versions(packages), about=about)

    @property
    def machine_line(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self.machine.items())

    def to_json(self) -> dict[str, Any]:
        return {
            **self.about,
            "rows": [row.to_json() for row in self.rows],
            "machine": self.machine,
            "versions": self.versions,
        }
