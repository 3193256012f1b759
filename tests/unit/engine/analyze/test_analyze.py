"""`engine analyze`: recordings of three kinds, the table, the page, --json."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from engine.cli import app
from engine.core.trajectory.events import Answered, AnyEvent, Called, Opened
from engine.offline.analyze.findings import findings
from engine.offline.analyze.page import page
from engine.offline.analyze.rates import compared
from engine.offline.analyze.table import table
from engine.offline.analyze.tally import ToolTally
from engine.offline.analyze.words import read_vocabulary
from engine.serving.journal.journal import Journal
from engine.serving.journal.reader import JournalReader
from engine.serving.journal.schema import FILE_NAME
from engine.types import SessionRef, ToolSpec
from tests.support.journaled import recorded, store_group
from tests.support.logs import V1, example
from tests.support.messages import assistant, call, tool, user
from tests.support.stills import words_of
from toolwright.trajectory_files import write_trajectories
from toolwright.types import (
    CallOutcome,
    CallRecord,
    Event,
    SamplingParams,
    ToolErrorKind,
    Trajectory,
    ids,
)

FILM = ToolSpec(
    name="film_lookup",
    description="Looks a movie up by its title.",
    arguments_schema={"type": "object", "properties": {"title": {"type": "string"}}},
)
MADE = ToolSpec(name="get_battle", arguments_schema={"properties": {"year": {"minimum": 1}}})
HOSTILE = "<script>alert(1)</script>\x1b[31m\u202e"


def analyze(*words: Any) -> Result:
    return CliRunner().invoke(app, ["analyze", *map(str, words)])


def found_of(*words: Any) -> dict[str, Any]:
    result = analyze(*words, "--json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def sentence(result: Result) -> str:
    assert result.exit_code == 1, result.output
    assert not result.stdout
    (line,) = result.stderr.splitlines()
    return line


def log(name: str, called: str = "film_lookup") -> list[AnyEvent]:
    """Of an attempt that calls a tool; the answer brings another tool."""
    session = SessionRef(service="s", session_id="1", endpoint="unix:/t", tools=(FILM,))
    events: list[AnyEvent] = []
    for event in example():
        if isinstance(event, Opened):
            event = Opened(sessions=(session,), prompt=ids([1]), sampling=SamplingParams())
        elif isinstance(event, Called):
            event = Called(
                call_id=f"{name}/0/0", turn=0, index=0, action="a", tool=called, service="s"
            )
        elif isinstance(event, Answered):
            outcome = event.outcome.__class__(observation="1", valid=True, tool=called)
            event = Answered(call_id=f"{name}/0/0", outcome=outcome, new_tools=(MADE,))
        events.append(event)
    return events


async def run_of(folder: Path, *calls: str, history: Any = "all") -> list[Trajectory]:
    """A run in which each call was a group's, the first one acknowledged."""
    journal = Journal(folder / FILE_NAME, history=history)
    logs = {f"g{n:07d}-0": log(f"g{n:07d}-0/b1r0a0", called) for n, called in enumerate(calls)}
    numbers = [
        await store_group(journal, position, {name: logs[name]}, version=V1)
        for position, name in enumerate(logs)
    ]
    await journal.acknowledge(numbers[0])
    journal.append("g9000000-0/b1r0a0", log("x")[:3])
    await journal.flush()
    await journal.close()
    return [recorded(name, events) for name, events in logs.items()]


async def test_a_run_that_keeps_its_history(tmp_path: Path) -> None:
    await run_of(tmp_path, "film_lookup", "film_lookup", "get_battle", "made_up")
    found = found_of(tmp_path)
    assert (found["trajectories"], found["invocations"], found["unique_tools"]) == (4, 4, 3)
    assert found["without_schema"] == {"tools": 1, "invocations": 1}, "no session has made_up"
    shown = {one["name"]: one for one in found["tools"]}
    assert shown["film_lookup"] == {
        "rank": 1, "name": "film_lookup", "invocations": 2, "domain": "Film",
        "function": "Search and lookup", "complexity": "simple",
    }  # fmt: skip
    assert shown["get_battle"]["domain"] == "Historical", "a tool that came with an answer"
    assert {one["word"] for one in found["words"]} >= {"movie", "battle"}
    assert found["notes"] == [f"{tmp_path}: 1 attempts without a complete group are left out"]


async def test_a_trajectories_file(tmp_path: Path) -> None:
    made = await run_of(tmp_path / "run", "film_lookup", "get_battle", "")
    file = tmp_path / "kept.trajectories"
    write_trajectories(file, made)
    found = found_of(file)
    assert (found["invocations"], found["unique_tools"], found["nameless_calls"]) == (2, 2, 1)
    assert found["tools"][0]["complexity"] == "unknown"
    assert "only the names of tools" in found["notes"][0]
    lines = analyze(file).stdout.splitlines()
    assert any("2 of 2 tools, 2 invocations, have no recorded schema" in one for one in lines)


def called(group: str, name: str, *outcomes: CallOutcome, **data: Any) -> Trajectory:
    """A trajectory whose calls ended so; data: of an event `measured`."""
    calls = tuple(
        CallRecord(call_id=f"{name}{n}", turn=n, index=0, tool="film", action="a", outcome=one)
        for n, one in enumerate(outcomes)
    )
    events = (Event(kind="measured", turn=0, data=data),) if data else ()
    made = recorded(f"{group}-{name}", log(f"{group}-{name}/b1r0a0"))
    return replace(made, group_id=group, calls=calls, events=events)


GOOD = CallOutcome(observation="1", valid=True)
REFUSED = CallOutcome(observation="", valid=False, error=ToolErrorKind.INVALID_ACTION)
FAILED = CallOutcome(observation="", valid=True, error=ToolErrorKind.TIMEOUT)


def test_rates_have_errors_over_groups_and_two_recordings_are_compared(tmp_path: Path) -> None:
    a, b = tmp_path / "a.trajectories", tmp_path / "b.trajectories"
    write_trajectories(a, [
        called("g1", "0", GOOD, REFUSED, disagreement=1.0),
        called("g1", "1", GOOD, query_length=[40, 60]),
        called("g2", "0", GOOD, FAILED, GOOD, REFUSED, REFUSED, disagreement=0.0),
    ])  # fmt: skip
    write_trajectories(b, [called("g1", "0", GOOD, GOOD), called("g2", "0", GOOD, REFUSED)])
    found = found_of(a)["rates"]
    assert found["calls a trajectory"]["rate"] == pytest.approx(8 / 3)
    assert found["query_length"] == {"rate": 50.0, "of": 2.0, "standard_error": None}
    assert found["failed calls"]["rate"] == 1 / 8
    # Two groups: 1 of 3 calls and 2 of 5.
    error = math.sqrt(((1 - 3 * 3 / 8) ** 2 + (2 - 5 * 3 / 8) ** 2) * 2) / 8
    malformed = {"rate": 3 / 8, "of": 8.0, "standard_error": pytest.approx(error), "share": True}
    assert found["malformed calls"] == malformed
    # 1 of 1 and 0 of 1.
    assert found["disagreement"] == {"rate": 0.5, "of": 2.0, "standard_error": pytest.approx(0.5)}

    both = found_of(a, "--compare", b)["compared"]
    assert both["recording"] == str(b)
    one = next(one for one in both["rates"] if one["name"] == "malformed calls")
    # B has 0 of 2 and 1 of 2 calls.
    other = math.sqrt(((0 - 2 / 4) ** 2 + (1 - 2 / 4) ** 2) * 2) / 4
    assert one["a"] == malformed
    assert one["difference"] == -1 / 8
    assert one["standard_error"] == pytest.approx(math.hypot(error, other))
    assert one["p"] == pytest.approx(math.erfc(0.125 / math.hypot(error, other) / math.sqrt(2)))
    assert not any(one["name"] == "disagreement" for one in both["rates"]), "B has none"
    page = tmp_path / "page.html"
    text = analyze(a, "--compare", b, "--page", page).stdout
    line = "malformed calls 37.5% ± 3.1% of 8 25.0% ± 25.0% of 4 -12.5% ± 25.2% 0.62"
    assert line in [" ".join(one.split()) for one in text.splitlines()]
    assert "-12.5% ± 25.2%" in words_of(page.read_text(encoding="utf-8"))


async def test_branches_have_the_calls_before_the_fork_in_common(tmp_path: Path) -> None:
    made = recorded("g1-0", log("g1-0/0"))
    branch = recorded("g1-1", log("g1-0/0"))  # the same call, by its id
    stranger = recorded("g2-0", log("g1-0/0"))
    file = tmp_path / "kept.trajectories"
    write_trajectories(file, [made, branch, stranger])
    assert found_of(file)["invocations"] == 2


LOOK = {
    "name": "film", "description": "Looks a film up.",
    "parameters": {"properties": {"title": {"pattern": "x"}, "year": {}}},
}  # fmt: skip
CALLS = assistant(None, call("film", '{"title": "Lost"}'), call("song", "{}"))
ROW = {
    "messages": [user("Who?"), CALLS, tool("1"), tool("2"), assistant("He.")],
    "tools": [{"type": "function", "function": LOOK}],
}


def test_conversations_and_several_recordings_together(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(json.dumps(ROW) + "\n", encoding="utf-8")
    found = found_of(file)
    assert [one["complexity"] for one in found["tools"]] == ["moderate", "unknown"]
    assert found["rates"]["calls a trajectory"]["rate"] == 2
    assert "malformed calls" not in found["rates"], "conversations say nothing of them"
    twice = found_of(file, file)
    assert twice["invocations"] == 2 * found["invocations"] == 4
    assert twice["unique_tools"] == found["unique_tools"]


def test_a_folder_of_shards_is_counted_once(tmp_path: Path) -> None:
    for shard in range(2):
        for end in (".openai.jsonl", ".hermes.jsonl"):
            (tmp_path / f"0000{shard}{end}").write_text(json.dumps(ROW) + "\n", encoding="utf-8")
        write_trajectories(tmp_path / f"0000{shard}.trajectories", [])
    found = found_of(tmp_path)
    assert (found["trajectories"], found["invocations"]) == (2, 4)
    (note,) = found["notes"]
    assert "files that end in .openai.jsonl" in note
    (tmp_path / "00002.openai.jsonl.unfinished").write_text("{", encoding="utf-8")
    assert "is still written to" in found_of(tmp_path)["notes"][1]
    for file in tmp_path.glob("*.jsonl*"):
        file.unlink()
    write_trajectories(tmp_path / "00002.trajectories", [recorded("g1-0", log("g1-0/0"))])
    assert found_of(tmp_path)["invocations"] == 1


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("absent", None, "no file"),
        ("x.jsonl", b"{}\n", ":1: a line is"),
        ("x.jsonl", b'{"messages": []}\n{', ":2: not JSON"),
        ("x.json", b'[{"messages": []}]', "is one JSON list"),
        ("x.trajectories", b"\xff\xff\xff nonsense", "not a trajectories file, or is cut"),
        ("folder/", None, "no run in"),
        ("run/journal.sqlite", b"nonsense" * 100, "journal.sqlite"),
    ],
)
def test_what_is_no_recording(tmp_path: Path, name: str, content: bytes | None, words: str) -> None:
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    if name.endswith("/"):
        file.mkdir()
    if content is not None:
        file.write_bytes(content)
    line = sentence(analyze(file.parent if file.name == FILE_NAME else file))
    assert words in line
    assert "Traceback" not in line


def test_an_empty_file_is_nothing_called(tmp_path: Path) -> None:
    (tmp_path / "empty.trajectories").touch()
    (tmp_path / "empty.jsonl").touch()
    made = tmp_path / "page.html"
    result = analyze(tmp_path / "empty.jsonl", tmp_path / "empty.trajectories", "--page", made)
    assert result.stdout.startswith("0 invocations of 0 unique tools")
    assert "no rank-frequency law" in result.stdout
    assert "heading" not in words_of(made.read_text(encoding="utf-8")).splitlines()


def test_hostile_names_steer_neither_page_nor_terminal() -> None:
    tally = ToolTally(read_vocabulary())
    for name in (HOSTILE, f"{HOSTILE}\n2", "\udc80"):
        tally.add(name, HOSTILE, {"properties": {HOSTILE: {}}})
    tally.rates.add({HOSTILE: [1, 2]})
    found = findings(tally, [HOSTILE])
    found["compared"] = {"recording": HOSTILE, "rates": compared(found["rates"], found["rates"])}
    made = page(found, HOSTILE)
    assert HOSTILE in words_of(made) and HOSTILE not in made
    assert "\x1b" not in made
    made.encode()
    for line in table(found):
        assert line.isprintable()
        line.encode()
    json.dumps(found)


async def test_a_log_that_cannot_be_read_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await run_of(tmp_path, "film_lookup")

    def damaged(_reader: JournalReader, attempt: str) -> list[AnyEvent]:
        raise ValueError(attempt)

    monkeypatch.setattr(JournalReader, "log", damaged)
    found = found_of(tmp_path)
    assert found["without_schema"]["tools"] == 1
    assert any("1 logs of attempts cannot be read" in note for note in found["notes"])


def test_calls_written_in_content_are_told(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    messages = [user("Who?"), assistant("search(who)"), tool("he")]
    file.write_text(json.dumps({"messages": messages}) + "\n", encoding="utf-8")
    (note,) = found_of(file)["notes"]
    assert note.startswith("1 messages of role tool ")


def test_own_words(tmp_path: Path) -> None:
    file, words = tmp_path / "a.jsonl", tmp_path / "w.toml"
    file.write_text(json.dumps(ROW) + "\n", encoding="utf-8")
    words.write_text('[domains]\nSinging = ["song"]\n', encoding="utf-8")
    found = found_of(file, "--domains", words)
    assert [one["name"] for one in found["domains"]] == ["Singing", "Other"]
    assert "not TOML" in sentence(analyze(file, "--domains", file))


def test_a_page_that_cannot_be_written_is_told_before_the_work(tmp_path: Path) -> None:
    absent, file = tmp_path / "absent.jsonl", tmp_path / "a.jsonl"
    file.touch()
    assert "is a file and not a folder" in sentence(analyze(absent, "--page", file / "page.html"))
    assert "is a folder" in sentence(analyze(absent, "--page", tmp_path))


async def test_a_run_that_keeps_what_is_open(tmp_path: Path) -> None:
    await run_of(tmp_path, *["film_lookup"] * 3, history="open")
    found = found_of(tmp_path)
    assert found["invocations"] == 2
    assert found["without_schema"]["tools"] == 1
    assert "holds 2 of the 3 groups" in found["notes"][0]
