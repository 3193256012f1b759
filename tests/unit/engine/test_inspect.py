"""`engine inspect`: a run's state, and a trajectory as a timeline, also while an engine serves."""

from __future__ import annotations

import contextlib
import io
import json
import re
import sqlite3
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from engine.cli import app
from engine.errors import StartupError
from engine.offline.enums import TraceLayout
from engine.offline.inspect.show import escaped, show
from engine.offline.inspect.state import record_details, run_state, trajectory_state
from engine.offline.inspect.trace import write_traces
from engine.serving.journal.journal import Journal
from engine.serving.journal.schema import FILE_NAME
from tests.support.collectors import decoded, spans_by_service
from tests.support.journaled import recorded, store_group
from tests.support.logs import V1, example
from tests.support.recorded_runs import Recorded
from toolwright.tracing.ids import root_span, trace_id
from toolwright.types import Event, Task, Trajectory


def finished(name: str) -> Trajectory:
    return recorded(name, example(), task=Task(id="q1", prompt="6*7"))


async def group(journal: Journal, position: int, *, turned_away: bool = False) -> int:
    logs = {f"g{position:07d}-0": example()}
    return await store_group(journal, position, logs, version=V1, turned_away=turned_away)


@pytest.fixture
async def run(tmp_path: Path) -> AsyncIterator[Path]:
    """A run in progress: one group acknowledged, one dropped, one waiting, one discarded, three
    in flight."""
    journal = Journal(tmp_path / FILE_NAME)
    await journal.set_version(V1, tmp_path / "policy" / "a-1", None)
    first, second = await group(journal, 1), await group(journal, 2)
    await group(journal, 3)
    await journal.acknowledge(first)
    await journal.drop(second)
    await group(journal, 5, turned_away=True)
    await journal.skip(9, "no \x1b[31mimage")
    journal.append("g0000004-0/b1r0a0", example()[:3])
    journal.append("g0000004-1/b1r0a0", example()[:6])
    journal.append("g0000004-2/b1r0a0", example())
    await journal.flush()
    (tmp_path / "engine.jsonl").write_text(
        "".join(
            json.dumps({"event": f"e{i}", "level": level, "timestamp": f"t{i}"}) + "\n"
            for i, level in enumerate(["info", "error", "warning", "info"] * 4)
        )
        + '{"event": "cut',
        encoding="utf-8",
    )
    yield tmp_path
    await journal.close()


def laid_out(found: dict[str, Any]) -> str:
    out = io.StringIO()
    show(found, out)
    return out.getvalue()


async def test_the_state_of_a_run_in_progress(run: Path) -> None:
    found = run_state(run)
    assert found["engine_lives"]
    assert found["version"] == "a.1"
    assert found["groups"] == {
        "waiting": 1, "delivered": 1, "dropped": 1, "turned_away": 1, "skipped": 1,
    }  # fmt: skip
    assert found["skipped"] == [{"position": 9, "reason": "no \x1b[31mimage"}]
    flying = {one["attempt"]: (one["turn"], one["doing"]) for one in found["in_flight"]}
    assert flying == {
        "g0000004-0/b1r0a0": (0, "calls python"),
        "g0000004-1/b1r0a0": (1, "generates"),
        "g0000004-2/b1r0a0": (1, "waits for its group"),
    }
    assert all(0 <= one["age_s"] < 60 for one in found["in_flight"])
    assert [one["event"] for one in found["last_errors"]] == ["e6", "e9", "e10", "e13", "e14"]
    text = laid_out(found)
    assert "serves it now" in text
    assert "g0000004-1/b1r0a0" in text
    assert "\x1b" not in text


async def test_a_finished_trajectory_as_a_timeline(run: Path) -> None:
    found = trajectory_state(run, "g0000003-0", lambda ids: f"<{len(ids)} ids>")
    told = [
        (e["kind"], e.get("author"), e.get("tokens"), e.get("position")) for e in found["timeline"]
    ]
    assert told == [
        ("tokens", "PROMPT", 3, 0),
        ("tokens", "MODEL", 2, 3),
        ("tokens", "MODEL", 1, 5),
        ("call", None, None, None),
        ("tokens", "TOOL", 2, 6),
        ("event", None, None, None),
        ("tokens", "MODEL", 2, 8),
    ]  # fmt: skip
    call = found["timeline"][3]
    assert (call["tool"], call["queued_s"], call["run_s"]) == ("python", 0.001, 0.02)
    assert call["answered_s"] == pytest.approx(0.025)
    assert [e["version"] for e in found["timeline"] if e.get("author") == "MODEL"] == [
        "a.0", "a.1", "a.1",
    ]  # fmt: skip
    assert found["timeline"][0]["text"] == "<3 ids>"
    assert {"name": "tidy", "value": 0.0, "turn": 0} in found["reward_parts"]
    assert (found["stop_reason"], found["masked"], found["why_masked"]) == ("ANSWERED", False, "")
    text = laid_out(found)
    for piece in ("tidy of turn 0", "ANSWERED", "STOP '</python>'", "queued 1.0 ms, ran 20.0 ms"):
        assert piece in text


async def test_a_reward_of_minus_zero_is_shown_as_zero(run: Path) -> None:
    """As of `-0.05 * 0`, a penalty for nothing."""
    found = trajectory_state(run, "g0000003-0", lambda ids: f"<{len(ids)} ids>")
    found |= {"reward": -0.0, "reward_parts": [{"name": "late", "value": -0.0, "turn": None}]}
    text = laid_out(found)
    assert "late: 0" in text
    assert re.search(r"reward +0", text)


async def test_a_trajectory_in_flight_as_a_timeline(run: Path) -> None:
    found = trajectory_state(run, "g0000004-0")
    assert (found["status"], found["turn"], found["waits_for"]) == ("IN_FLIGHT", 0, ["0/0"])
    assert [e["kind"] for e in found["timeline"]] == ["tokens"] * 3
    assert "not yet" in laid_out(found)
    ended = trajectory_state(run, "g0000004-2")
    assert (ended["status"], ended["stop_reason"], ended["reward"]) == ("ENDED", "ANSWERED", 0.5)
    assert "ANSWERED" in laid_out(ended)


async def test_an_unknown_trajectory_is_answered_with_near_names(run: Path) -> None:
    for name, words in (
        ("g0000004-9", "no trajectory g0000004-9 .*near: .*g0000004-"),
        ("xyz", "no trajectory xyz .*some: .*g000000"),
        ("g0000001-0", 'delivered and acknowledged.*history = "all"'),
        ("g0000005-0", 'had no signal.*history = "all"'),
    ):
        with pytest.raises(StartupError, match=words):
            trajectory_state(run, name)


def test_why_a_trajectory_is_masked_is_said() -> None:
    one = replace(finished("g0000001-0"), masked=True)

    def why(kind: str, error: str) -> Any:
        event = Event(kind=kind, turn=0, data={"error": error})
        return record_details(replace(one, events=(event,)))["why_masked"]

    assert why("reward_failed", "took more than 60 s") == "reward_failed: took more than 60 s"
    assert why("attempt_failed", "no sampler") == "attempt_failed: no sampler"
    assert "rule" in record_details(replace(one, events=()))["why_masked"]


@pytest.mark.parametrize("text", ["\x1b[2J\x1b]0;owned\x07", "a\rb\x08", "\u202eevil", "\x9b31m"])
def test_what_a_terminal_would_obey_is_shown_as_text(text: str) -> None:
    shown = escaped(f"[red]before {text} after :smile:")
    assert shown.isprintable()
    assert shown.startswith("[red]before ") and shown.endswith(" after :smile:")
    one = finished("g0000001-0")
    calls = (replace(one.calls[0], tool=text),)
    found = record_details(replace(one, calls=calls), lambda _ids: f"[b]{text}")
    out = laid_out({"trajectory": text, "attempts": [], **found})
    assert all(char.isprintable() or char == "\n" for char in out)
    assert "[b]" in out


async def test_damage_is_told_and_the_rest_is_shown(run: Path) -> None:
    with contextlib.closing(sqlite3.connect(run / FILE_NAME)) as db, db:
        db.execute(
            "UPDATE events SET data = x'ff' WHERE log ="
            " (SELECT log FROM logs WHERE attempt LIKE 'g0000004-1/%')"
        )
    found = run_state(run)
    told = [one.get("error", "") for one in found["in_flight"]]
    assert [bool(error) for error in told] == [False, True, False]
    assert "cannot be read" in laid_out(found)
    with pytest.raises(StartupError, match=r"log of g0000004-1/b1r0a0 cannot be read"):
        trajectory_state(run, "g0000004-1")
    with contextlib.closing(sqlite3.connect(run / FILE_NAME)) as db:
        db.execute("DROP TABLE members")
    with pytest.raises(StartupError, match="cannot be used"):
        trajectory_state(run, "g0000003-0")


async def test_the_command_prints_json_for_machines_and_one_sentence_for_a_wrong_name(
    run: Path,
) -> None:
    done = CliRunner().invoke(app, ["inspect", str(run), "g0000003-0", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["timeline"][0]["text"] is None  # no recipe, no tokenizer
    assert json.loads(CliRunner().invoke(app, ["inspect", str(run), "--json"]).output)["groups"]
    assert "in flight: 3" in CliRunner().invoke(app, ["inspect", str(run)]).output
    done = CliRunner().invoke(app, ["inspect", str(run / "nowhere")])
    assert done.exit_code == 1
    assert "no run in" in done.output
    assert len(done.output.splitlines()) == 1


@pytest.fixture
def history(tmp_path: Path) -> Path:
    recorded = Recorded(tmp_path / "run")
    groups = [[recorded.trajectory(f"g{g}-{m}") for m in (0, 1)] for g in (0, 1)]
    recorded.journal(*groups, owner="somebody")
    return recorded.folder


def test_all_that_is_held_is_a_trace_each(history: Path, tmp_path: Path) -> None:
    file = tmp_path / "traces.json"
    assert write_traces(history, (), file, TraceLayout.JAEGER) == f"4 traces in {file}"
    traces = json.loads(file.read_text(encoding="utf-8"))["data"]
    names = ["g0-0", "g0-1", "g1-0", "g1-1"]
    assert [one["traceID"] for one in traces] == [trace_id("somebody", name) for name in names]
    assert traces[0]["spans"][0]["spanID"] == root_span("somebody", "g0-0")
    assert traces[0]["spans"][0]["operationName"] == "trajectory"


def test_a_run_that_holds_nothing_leaves_what_was_there(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path / "run")
    recorded.journal()
    file = tmp_path / "traces.json"
    file.write_text("before", encoding="utf-8")
    with pytest.raises(StartupError, match=r"engine\.history"):
        write_traces(recorded.folder, (), file, TraceLayout.JAEGER)
    assert file.read_text(encoding="utf-8") == "before"


def test_named_ones_in_their_order_as_otlp(history: Path, tmp_path: Path) -> None:
    file = tmp_path / "traces.json"
    write_traces(history, ("g1-1", "g0-0", "g1-1"), file, TraceLayout.OTLP)
    spans = spans_by_service([decoded(json.loads(file.read_text(encoding="utf-8")))])
    traces = dict.fromkeys(span.trace_id.hex() for _, span in spans)
    assert list(traces) == [trace_id("somebody", name) for name in ("g1-1", "g0-0")]
