"""The pinned packages run on the lowest Python that the README lets a user bring."""

from __future__ import annotations

from importlib.metadata import distributions

from packaging.specifiers import SpecifierSet

DEBIAN_12 = "3.11.2"


def test_each_installed_package_takes_the_python_of_debian_12() -> None:
    needed = {one.name: one.metadata.get("Requires-Python") or "" for one in distributions()}
    assert needed
    refused = {
        name: pythons
        for name, pythons in needed.items()
        if not SpecifierSet(pythons).contains(DEBIAN_12)
    }
    assert not refused, "pin older versions in constraints/toolwright.txt"
