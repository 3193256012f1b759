"""`engine eval`: suites without a learner, from scripted sampler and tool to table and page."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bench.scripted import ScriptRequest, Timing
from engine.cli import app
from engine.errors import StartupError
from engine.offline.evaluate.questions import Subset
from engine.offline.evaluate.results.figures import ResultOptions
from engine.offline.prices import Prices
from engine.offline.signals import StoppedBySignal
from engine.serving.evaluation import suite as suites
from tests.integration.engine.conftest import MakeWorld
from tests.integration.toolsvc.conftest import start_service
from tests.support.dialogue import ANSWER
from tests.support.engines import finished, killed_when
from tests.support.evaluated import asked, lines
from tests.support.evaluations import lane, suite
from tests.support.recipes import merged, write_recipe
from tests.support.stills import words_of
from tests.support.tools import ToolDouble, broken
from tests.support.waiting import until

pytestmark = pytest.mark.quick


def questions(folder: Path, name: str, n: int, *sources: str) -> dict[str, Any]:
    """A suite of its own file."""
    rows = [
        {"id": f"{name}{number}", "prompt": f"what is {number}+1?", "answer": str(number + 1)}
        | ({"data_source": sources[number % len(sources)]} if sources else {})
        for number in range(n)
    ]
    (folder / f"{name}.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8"
    )
    return suite(name, n, source=f"{name}.jsonl")


async def test_two_sets_through_a_real_tool_service(world: MakeWorld, tmp_path: Path) -> None:
    """One set is answered by what the tool printed, the other by what it did not."""

    def script(request: ScriptRequest) -> Sequence[int]:
        said = here.codec.decode(request.input_ids)
        if "</result>" not in said:
            return here.codec.encode("<python> print(int('1') + 1)</python>")
        right = "<result> 2" in said and "wrong" not in request.conversation
        return here.codec.encode(ANSWER if right else ANSWER.replace("2", "3"))

    here = await world(script=script)
    service = start_service(
        tmp_path / "tools.log", "python", "--ready", "2", "--shards", "1", "--memory-mib", "192"
    )
    try:
        changes = {
            "tools": {"python": {"service": service.address}},
            "engine": lane(
                questions(here.folder, "right", 4, "nq", "popqa"),
                questions(here.folder, "wrong", 3) | {"when": "ends"},
            ),
        }
        found = await asked(here, changes=changes, results=ResultOptions(prices=Prices(read=1.0)))
    finally:
        service.process.terminate()
        assert service.process.wait(20) == 0
    assert [(one["name"], one["n"], one["score"]) for one in found["sets"]] == [
        ("nq", 2, 1.0), ("popqa", 2, 1.0), ("wrong", 3, 0.0),
    ]  # fmt: skip
    assert found["average"]["score"] == pytest.approx(2 / 3)
    assert (found["complete"], found["weights"]) == (True, "default of scripted")
    (nq, *_) = found["sets"]
    assert (nq["calls"], nq["stops"]) == (1.0, {"answered": 2})
    assert nq["input_tokens"] > 40 and nq["output_tokens"] > 10 and nq["cost"] > 0
    folder = here.folder / "eval"
    assert json.loads((folder / "results.json").read_text(encoding="utf-8")) == found
    page = words_of((folder / "page.html").read_text(encoding="utf-8"))
    assert "right, right0" in page and "popqa" in page
    assert sorted(row["task_id"] for row in lines(folder)) == sorted(
        [f"right{n}" for n in range(4)] + [f"wrong{n}" for n in range(3)]
    )


async def test_a_subset_asks_the_same_questions_again(world: MakeWorld) -> None:
    here = await world()
    changes = {"engine": lane(questions(here.folder, "a", 30), questions(here.folder, "b", 4))}
    few = {"subset": Subset(n=5, seed=7), "changes": changes}
    await asked(here, **few)
    await asked(here, **few, output=here.folder / "again")
    ids = sorted(row["task_id"] for row in lines(here.folder / "eval"))
    assert ids == sorted(row["task_id"] for row in lines(here.folder / "again"))
    assert len(ids) == 5 + 4
    assert [one for one in ids if one[0] == "a"] != [f"a{n}" for n in range(5)]
    rows = lines(here.folder / "eval")
    assert all(row["task_id"] == f"{row['suite']}{row['position']}" for row in rows)
    shorter = {"engine": lane(suite("a", 20, source="a.jsonl"), suite("b", 4, source="b.jsonl"))}
    with pytest.raises(StartupError, match="begun with questions of suite a "):
        await asked(here, **few | {"changes": shorter})


async def test_without_suites_it_asks_the_tasks_of_the_recipe(world: MakeWorld) -> None:
    here = await world()
    questions(here.folder, "own", 3)
    found = await asked(here, changes={"task": {"source": "own.jsonl"}})
    assert [(one["name"], one["n"]) for one in found["sets"]] == [("task", 3)]


async def test_what_stays_without_a_score_is_asked_again_then_counted_apart(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tool service fails three attempts of three rows in two passes, and one row in the third.
    Another life of the same command asks that one again."""
    monkeypatch.setattr(suites, "PASS_PAUSE_S", 0.01)
    double = ToolDouble(faults=[broken()] * 21)
    here = await world(tools=double, engine={"patience_s": 0.0, **lane(suite("nq", 3))})
    found = await asked(here, concurrency=1)
    assert (found["sets"][0]["n"], found["sets"][0]["score"]) == (2, 1.0)
    assert (found["suites"][0]["errored"], found["complete"]) == (1, True)
    (lost,) = found["without_a_score"]
    assert lost["task_id"] == "t0" and "the service has a fault" in lost["reason"]
    seen = len(here.sampler.requests)
    again = await asked(here, concurrency=1)
    assert (again["sets"][0]["n"], again["suites"][0]["errored"]) == (3, 0)
    assert len(here.sampler.requests) == seen + 2


async def test_a_row_that_is_scored_slowly_is_not_run_again_meanwhile(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its second run is being scored when the next pass over errored rows would begin."""
    monkeypatch.setattr(suites, "PASS_PAUSE_S", 0.0)
    double = ToolDouble(faults=[broken()] * 3)
    here = await world(tools=double, engine={"patience_s": 0.0, **lane(suite("nq", 1))})
    here.rewards("await asyncio.sleep(0.3)", "return 1.0")
    found = await asked(here)
    assert found["sets"][0]["score"] == 1.0
    assert len(here.sampler.requests) == 3 + 2
    assert [bool(row["errored"]) for row in lines(here.folder / "eval")] == [True, False]


async def test_a_protocol_that_does_not_fit_ends_it_at_once(world: MakeWorld) -> None:
    here = await world(engine=lane(suite("nq", 2)))
    (here.folder / "broken.py").write_text(
        "from engine.core.protocols.tagged import Tagged\n"
        "class Broken(Tagged):\n"
        "    def prompt(self, task, tools, codec):\n"
        "        raise ValueError('no such template')\n",
        encoding="utf-8",
    )
    with pytest.raises(StartupError, match=r"does not fit policy\.model: no such template"):
        await asked(here, changes={"task": {"protocol": "./broken.py:Broken"}})
    assert not here.sampler.requests


async def test_an_agent_of_its_own_is_refused(world: MakeWorld) -> None:
    here = await world(engine=lane(suite("nq", 2)))
    with pytest.raises(StartupError, match=r"task\.agent: only `engine serve` serves"):
        await asked(here, changes={"task": {"agent": {}}})


async def test_other_settings_are_refused_and_fresh_begins_anew(world: MakeWorld) -> None:
    here = await world(engine=lane(suite("nq", 2)))
    await asked(here)
    seen = len(here.sampler.requests)
    with pytest.raises(StartupError, match=r"begun with sampling of suite nq .*--fresh"):
        await asked(here, temperature=0.5)
    with pytest.raises(StartupError, match="begun with --subset 'all', not '1 of seed 0'"):
        await asked(here, subset=Subset(n=1))
    await asked(here)
    assert len(here.sampler.requests) == seen
    with pytest.raises(StartupError, match="--suite popqa"):
        await asked(here, suites=("popqa",), fresh=True)
    assert not (here.folder / "eval.before-1").exists()
    await asked(here, subset=Subset(n=1), fresh=True)
    assert len(lines(here.folder / "eval")) == 1
    assert len(lines(here.folder / "eval.before-1")) == 2


async def test_the_command_line_of_a_whole_evaluation(world: MakeWorld) -> None:
    """Run in a thread: the command has an event loop of its own."""
    here = await world(engine=lane(suite("nq", 3)))
    tables = merged(here.tables, {"sampler": {"endpoints": ["http://127.0.0.1:1"]}})
    file = write_recipe(here.folder, tables)

    def typed(*words: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, ["eval", *words])
        return done.exit_code, done.output

    words = ("eval", file, "--endpoint", here.sampler.url, "--output", here.folder / "one")
    status, out, error = await finished(*words)
    assert status == 0, error
    assert re.search(r"^nq +3 +1\.000 ± 0\.000 +1\.00 ", out, re.MULTILINE)
    assert "3 questions, 0 done before; weights default of scripted" in error
    code, told = await asyncio.to_thread(typed, "show", str(here.folder / "one"), "--by", "correct")
    assert code == 0 and "correct" in told
    code, told = await asyncio.to_thread(typed, "compare", *[str(here.folder / "one")] * 2)
    assert code == 0 and "McNemar" in told
    code, told = await asyncio.to_thread(typed, "show", str(here.folder))
    assert (code, told.count("\n")) == (1, 1)
    assert "holds no evaluation" in told


async def test_killed_twice_every_question_is_there_exactly_once(world: MakeWorld) -> None:
    here = await world(
        timing=Timing(tokens_per_second=200), engine=lane(suite("a", 12), suite("b", 12))
    )
    file, folder = write_recipe(here.folder, here.tables), here.folder / "eval"
    seen = 0
    for least in (4, 12):
        await killed_when(
            lambda least=least: len(lines(folder)) >= least,  # type: ignore[misc]
            "rows",
            *("eval", file, "--concurrency", 3, "--output", folder),
        )
        done = {f"{row['suite']}-{row['index']}" for row in lines(folder)}
        assert least <= len(done) < 24
        seen = len(here.sampler.requests)
    found = await asked(here, concurrency=3)
    again = {
        str(s.body["routing_key"]).partition("/")[0].rpartition(".")[2]
        for s in here.sampler.requests[seen:]
    }
    assert again and not again & done
    assert [(one["name"], one["n"], one["score"]) for one in found["sets"]] == [
        ("a", 12, 1.0), ("b", 12, 1.0),
    ]  # fmt: skip
    rows = Counter((row["suite"], row["task_id"]) for row in lines(folder))
    assert set(rows.values()) == {1}
    assert len(rows) == 24
    assert not here.tools.live


async def test_a_signal_stops_it_in_order_and_the_same_command_goes_on(world: MakeWorld) -> None:
    here = await world(timing=Timing(tokens_per_second=100), engine=lane(suite("nq", 8)))
    work = asyncio.create_task(asked(here, concurrency=2))
    await until(lambda: len(lines(here.folder / "eval")) >= 2, "rows")
    os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(StoppedBySignal, match="stopped by SIGINT; the same command goes on"):
        await work
    assert not here.tools.live
    assert not (here.folder / "eval" / "results.json").exists()
    here.sampler.scheduler._timing = Timing()
    found = await asked(here)
    assert (found["sets"][0]["n"], found["complete"]) == (8, True)
