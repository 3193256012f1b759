"""The conformance suite as such: its checks, probes, findings, and what it prints."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.support.conformance.broken import BROKEN
from tests.support.conformance.reference.tools import descriptors
from toolsvc.check.check import check
from toolsvc.check.checks import ALL
from toolsvc.check.client import CheckClient
from toolsvc.check.connection import Connection
from toolsvc.check.probe import Kind, Probe, ProbeError, load_probes
from toolsvc.check.runner import jobs_of, run
from toolsvc.check.subject import subject_of
from toolsvc.check.types import CheckOutcome, Finding, Report, Rule
from toolsvc.cli import app
from toolwright import wire
from toolwright.tool.v1 import tool_pb2 as pb

REFERENCE = {tool.name: tool for tool in descriptors()}


def python_tool() -> pb.ToolDescriptor:
    return pb.ToolDescriptor(
        name="python",
        arguments_schema=wire.struct({"type": "object", "properties": {"code": {}}}),
        action_format=pb.ActionFormat(
            tag=pb.TagFormat(open="<python>", close="</python>", argument="code")
        ),
    )


def test_every_rule_is_checked_and_has_a_broken_service() -> None:
    assert {check.rule for check in ALL} == set(Rule)
    assert {one.rule for one in BROKEN.values()} == set(Rule)


def test_every_check_can_fail() -> None:
    caught = {name for one in BROKEN.values() for name in one.caught_by}
    assert caught == {check.name for check in ALL}


@pytest.mark.parametrize(
    ("template", "filled"),
    [("@text@", "it's"), ("@shell@", "'it'\"'\"'s'"), ("@sql@", "'it''s'"), ("@json@", '"it\'s"')],
)
def test_a_text_is_quoted_for_its_language_and_not_filled_again(template: str, filled: str) -> None:
    assert Probe(echo=template).body(Kind.ECHO, text="it's") == filled
    assert "@json@" in Probe(echo=template).body(Kind.ECHO, text="@json@")


def test_shipped_probes_are_taken_for_tools_that_have_their_arguments() -> None:
    probes = load_probes()
    assert Kind.EFFECT in subject_of(REFERENCE["counter"], probes).probe
    stranger = pb.ToolDescriptor(
        name="counter", arguments_schema=wire.struct({"properties": {"amount": {}}})
    )
    assert subject_of(stranger, probes).probe.kinds == []
    assert Kind.EFFECT in subject_of(python_tool(), probes).probe


def test_an_action_is_written_in_the_tools_format() -> None:
    probes = load_probes()
    counter = subject_of(REFERENCE["counter"], probes)
    assert counter.action(Kind.EFFECT) == (
        '<tool_call>{"name": "counter", "arguments": {"add": 1, "after": 0}}</tool_call>'
    )
    assert subject_of(REFERENCE["draw"], probes).action(Kind.MEDIA) == "<draw>circle</draw>"
    assert subject_of(python_tool(), probes).action(Kind.FAIL) == "<python>1 / 0</python>"
    raw = pb.ToolDescriptor(name="any", action_format=pb.ActionFormat(raw=pb.RawFormat()))
    assert subject_of(raw, {}).action() == "1"


def test_a_tool_without_a_probe_is_sent_something_whatever_its_schema() -> None:
    counter = subject_of(REFERENCE["counter"], {})
    call = json.loads(counter.action().removeprefix("<tool_call>").removesuffix("</tool_call>"))
    assert call == {"name": "counter", "arguments": {"add": 0, "after": 0}}
    broken = pb.ToolDescriptor(
        name="strange",
        arguments_schema=wire.struct({"properties": ["no", "object"]}),
        action_format=pb.ActionFormat(json_call=pb.JsonCallFormat(open="<c>", close="</c>")),
    )
    assert subject_of(broken, {}).action() == '<c>{"name": "strange", "arguments": {}}</c>'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[x", "x.toml: "),
        ('[x]\nsleeps = "1"', "x.sleeps: Extra inputs"),
        ("[x]\nsleep = 1", "x.sleep"),
    ],
)
def test_a_wrong_probe_file_says_where(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "x.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ProbeError, match=re.escape(says)):
        load_probes(path)


REPORT = Report(
    [
        Finding(name=ALL[0].name, rule=ALL[0].rule, outcome=CheckOutcome.PASSED),
        Finding(
            name=ALL[1].name, rule=ALL[1].rule, outcome=CheckOutcome.FAILED, reason="[it] broke"
        ),
        Finding(
            name=ALL[2].name, rule=ALL[2].rule, outcome=CheckOutcome.SKIPPED, reason="it has none"
        ),
    ]
)


def test_the_json_has_exactly_the_promised_fields() -> None:
    found = REPORT.as_json()
    assert list(found) == ["passed", "failed", "skipped", "checks"]
    assert (found["passed"], found["failed"], found["skipped"]) == (1, 1, 1)
    assert found["checks"][1] == {
        "name": ALL[1].name,
        "rule": "health",
        "tool": "",
        "outcome": "failed",
        "reason": "[it] broke",
    }


@check(Rule.HEALTH)
async def stumbles(client: CheckClient) -> None:
    """What the service says makes sense."""
    raise KeyError("isolation")


@check(Rule.HEALTH)
async def holds(client: CheckClient) -> None:
    """It holds."""


async def test_a_check_that_raises_is_one_failed_finding_and_ends_no_other() -> None:
    report = await run(Connection("unix:/nowhere"), jobs_of([stumbles, holds], []))
    assert [(one.name, one.outcome, one.reason) for one in report.findings] == [
        ("stumbles", CheckOutcome.FAILED, "unexpected: KeyError: 'isolation'"),
        ("holds", CheckOutcome.PASSED, ""),
    ]


def test_in_a_pipe_a_row_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    head, *rows = CliRunner().invoke(app, ["check", "--list"]).stdout.splitlines()
    assert head.split() == ["rule", "check", "what", "must", "hold"]
    assert [row.split(maxsplit=1)[1].split(maxsplit=1) for row in rows] == [
        [check.name, check.claim] for check in ALL
    ]
    assert not any(row.endswith(" ") for row in rows)
    monkeypatch.setenv("COLUMNS", "60")
    assert len(CliRunner().invoke(app, ["check", "--list"]).stdout.splitlines()) > len(ALL)
