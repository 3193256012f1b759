"""deploy/observability: what promtool says of it, and whether it names what is there."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.docs import DOCS
from tests.support.metric_names import all_families

ROOT = DOCS.parent
FOLDER = ROOT / "deploy" / "observability"
ENDS = {
    "counter": ("_total",),
    "histogram": ("_bucket", "_sum", "_count"),
    "summary": ("_sum", "_count"),
    "gauge": ("",),
}
DASHBOARD: dict[str, Any] = json.loads((FOLDER / "dashboard.json").read_text(encoding="utf-8"))
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
GRAPHS = [panel for panel in PANELS if panel["type"] != "row"]
(GROUP,) = yaml.safe_load((FOLDER / "alerts.yml").read_text(encoding="utf-8"))["groups"]
ALERTS: list[dict[str, Any]] = GROUP["rules"]


SITUATIONS = Path(__file__).with_name("alerts_test.yml")


def promtool(*words: str) -> str:
    """What it prints; the test fails where it finds a fault."""
    program = shutil.which("promtool")
    if program is None:
        pytest.fail("this test needs Prometheus: deploy/setup/system.sh prometheus")
    done = subprocess.run([program, *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_promtool_takes_configuration_and_rules() -> None:
    said = promtool("check", "config", str(FOLDER / "prometheus.yml"))
    assert f"{len(ALERTS)} rules found" in said


def test_alerts_fire_where_they_should_and_nowhere_else() -> None:
    promtool("test", "rules", str(SITUATIONS))
    named = set(re.findall(r'alertname="(\w+)"', SITUATIONS.read_text(encoding="utf-8")))
    assert named == {alert["alert"] for alert in ALERTS}


def test_every_metric_is_one_that_a_process_shows() -> None:
    shown = {
        family.name + end
        for family in all_families()
        if family.type in ENDS
        for end in ENDS[family.type]
    }
    asked = [target["expr"] for panel in GRAPHS for target in panel["targets"]]
    asked += [alert["expr"] for alert in ALERTS]
    for expression in asked:
        named = set(re.findall(r"toolwright_\w+", expression))
        assert named <= shown, named - shown
