"""The page of outside agents names the versions that the tests play."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.quick

ROOT = Path(__file__).resolve().parents[3]
ROW = re.compile(r"^\| ([\w@/, -]+) \| ([\d., ]+) \|", re.MULTILINE)


def pinned() -> dict[str, str]:
    """Version by package; of a scoped package of npm by its last name too."""
    found = {}
    for name in ("toolwright.txt", "agents.txt"):
        text = (ROOT / "constraints" / name).read_text(encoding="utf-8")
        found.update(re.findall(r"^([\w-]+)==(\S+)", text, re.MULTILINE))
        if name == "toolwright.txt":
            own = {package: found[package] for package in ("openai", "anthropic")}
    package = ROOT / "tests/integration/ingress/clients/package.json"
    for name, version in json.loads(package.read_text(encoding="utf-8"))["dependencies"].items():
        found |= {name: version, name.rpartition("/")[2]: version}
    return found | own


def test_the_page_names_the_versions_that_tests_play() -> None:
    rows = ROW.findall((ROOT / "docs/train/agents.md").read_text(encoding="utf-8"))
    versions = pinned()
    assert len(rows) == 10
    for names, numbers in rows:
        assert [versions[name] for name in names.split(", ")] == numbers.split(", ")
