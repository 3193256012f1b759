"""deploy/observability: what promtool says of it, and whether it names what is there."""

from __future__ import annotations

import itertools
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


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_an_alert_says_what_to_do_and_where_it_is_explained(alert: dict[str, Any]) -> None:
    said = alert["annotations"]
    assert " Look at " in said["runbook"]
    page, _, anchor = said["page"].partition("#")
    heads = re.findall(r"^#+ (.+)$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}
    assert not anchor or anchor in anchors


def test_panels_have_units_targets_and_room() -> None:
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    for panel in GRAPHS:
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["datasource"]["uid"] == "${datasource}"
        for target in panel["targets"]:
            assert '{run=~"$run",instance=~"$instance"' in target["expr"]
    names = [variable["name"] for variable in DASHBOARD["templating"]["list"]]
    assert names == ["datasource", "run", "instance"]


def test_panels_do_not_overlap() -> None:
    places = (
        [
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        ]
        for at in (panel["gridPos"] for panel in PANELS)
    )
    covered = list(itertools.chain.from_iterable(places))
    assert len(set(covered)) == len(covered)
    assert max(x for x, _ in covered) < 24
