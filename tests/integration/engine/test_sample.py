"""`engine sample`: trajectories without a learner, from scripted sampler and tool to the file."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bench.scripted import ScriptedSampler, ScriptRequest, Timing
from engine import lines as files
from engine.commands.sample import Options, Stopped, sample
from engine.config import EngineTable
from engine.errors import EngineError, StartupError
from engine.protocols.chat import Chat
from engine.protocols.tagged import Tagged
from engine.sample.store import Store
from engine.tools.spec import spec
from tests.integration.engine.conftest import MakeWorld, World
from tests.support.dialogue import ANSWER, CALL
from tests.support.recipes import merged, write_recipe
from tests.support.tools import JSON_CALL, ToolDouble, text
from tests.support.waiting import until
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.recipe import load_recipe
from toolwright.rpc.errors import ServiceError
from toolwright.tool.v1 import tool_pb2
from toolwright.trajectory_files import read_trajectories
from toolwright.types import Trajectory


async def collect(here: World, *, changes: dict[str, Any] | None = None, **options: Any) -> str:
    """Runs the command as the command line does; the summary."""
    file = write_recipe(here.folder, merged(here.tables, changes or {}))
    recipe = load_recipe(file)
    given = {"output": here.folder / "kept", "folder": here.folder, "n": 4, **options}
    shown: list[str] = []
    async with asyncio.timeout(30):
        return await sample(
            recipe, recipe.table("engine", EngineTable), Options(**given), shown.append
        )


def kept(here: World) -> list[Trajectory]:
    return list(read_trajectories(here.folder / "kept"))


def progress(here: World) -> list[dict[str, Any]]:
    text = (here.folder / "kept.progress.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()][1:]


class Choosy:
    """Answers 2 in the first half of a task's trajectories and 3 in the others; each trajectory
    with an even number says a word more."""

    def __init__(self, per_task: int) -> None:
        self.here: World
        self._per_task = per_task

    def __call__(self, request: ScriptRequest) -> Sequence[int]:
        number = int(request.conversation.partition("/")[0].rpartition("-")[2])
        said = self.here.codec.decode(request.input_ids)
        if "</result>" not in said:
            return self.here.codec.encode(CALL)
        answer = ANSWER if number < self._per_task // 2 else ANSWER.replace("2", "3")
        return self.here.codec.encode("so " * (number % 2) + answer)


def keep(here: World, body: str) -> str:
    (here.folder / "my_keep.py").write_text(f"def keep(trajectory):\n    {body}\n")
    return "./my_keep.py:keep"


async def test_every_trajectory_of_every_task_is_in_the_file(world: MakeWorld) -> None:
    here = await world()
    told = await collect(here, n=3)
    found = kept(here)
    assert sorted(t.task.id for t in found) == ["t0", "t1", "t2"]
    assert {t.reward for t in found} == {1.0}
    assert {str(v) for t in found for v in t.weight_versions} == {"default.0"}
    assert here.texts(found[0])[1:] == [
        ("model", CALL), ("tool", "<result> 2</result>"), ("model", ANSWER),
    ]  # fmt: skip
    assert told.startswith("3 of 3 tasks: 3 kept, 0 bad rows")
    assert not here.tools.live


async def test_filtered_deduplicated_capped(world: MakeWorld) -> None:
    script = Choosy(8)
    script.here = here = await world(script=script)
    wanted = keep(here, "return trajectory.reward > 0 and len(trajectory.metadata['texts']) == 2")
    told = await collect(here, n=2, per_task=8, keep=wanted, most_per_task=1)
    # Of eight, four are wrong; of the right ones the third says what the first does, which is kept.
    assert told.splitlines()[0] == (
        "2 of 2 tasks: 2 kept, 2 duplicate, 8 filtered, 4 over the cap, 0 bad rows"
    )
    assert [(t.task.id, t.index, t.reward) for t in sorted(kept(here), key=lambda t: t.id)] == [
        ("t0", 0, 1.0), ("t1", 0, 1.0),
    ]  # fmt: skip


async def test_a_larger_n_goes_on_from_what_is_done(world: MakeWorld) -> None:
    here = await world()
    await collect(here, n=2)
    asked = len(here.sampler.requests)
    before = kept(here)
    await collect(here, n=5)
    assert len(here.sampler.requests) == asked + 3 * 2
    assert kept(here)[:2] == before
    assert sorted(t.task.id for t in kept(here)) == [f"t{number}" for number in range(5)]


async def test_the_same_command_again_does_nothing(world: MakeWorld) -> None:
    here = await world()
    first = await collect(here)
    asked, data = len(here.sampler.requests), (here.folder / "kept").read_bytes()
    assert await collect(here) == first
    assert (len(here.sampler.requests), (here.folder / "kept").read_bytes()) == (asked, data)


async def test_after_a_kill_no_finished_task_runs_again(world: MakeWorld) -> None:
    here = await world()
    await collect(here, n=4)
    asked = len(here.sampler.requests)
    # What a kill leaves: the third task's line was cut, its trajectory and the fourth's are there.
    output, lines = here.folder / "kept", here.folder / "kept.progress.jsonl"
    output.rename(here.folder / "kept.unfinished")
    whole = lines.read_text().splitlines(keepends=True)
    lines.write_text("".join(whole[:3]) + whole[3][:30])
    await collect(here, n=4)
    assert len(here.sampler.requests) == asked + 2 * 2
    assert sorted(t.task.id for t in kept(here)) == ["t0", "t1", "t2", "t3"]


async def test_a_line_whose_trajectory_is_not_there_does_not_count(world: MakeWorld) -> None:
    """A power cut may lose the file's end and leave the line."""
    here = await world()
    await collect(here, n=4)
    asked = len(here.sampler.requests)
    output = here.folder / "kept"
    os.truncate(output, output.stat().st_size - 1)
    output.rename(here.folder / "kept.unfinished")
    await collect(here, n=4)
    assert len(here.sampler.requests) == asked + 2
    assert len(kept(here)) == 4


async def test_a_signal_stops_it_and_the_same_command_goes_on(world: MakeWorld) -> None:
    here = await world(timing=Timing(tokens_per_second=100))
    few = {"engine": {"max_concurrent": 1}}
    work = asyncio.create_task(collect(here, n=4, changes=few))
    lines = here.folder / "kept.progress.jsonl"
    await until(lambda: lines.exists() and lines.read_text().count("\n") >= 2, "a task")
    os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(Stopped, match="stopped by SIGTERM; the same command goes on"):
        await work
    assert not here.tools.live
    assert not (here.folder / "kept").exists()
    done = {row["task_id"] for row in progress(here)}
    assert 1 <= len(done) < 4
    seen = len(here.sampler.requests)
    await collect(here, n=4, changes=few)
    again = {str(s.body["routing_key"]) for s in here.sampler.requests[seen:]}
    assert {key.partition("-")[0] for key in again} == {
        f"s{number:07d}" for number in range(4) if f"t{number}" not in done
    }
    assert len(kept(here)) == 4


async def test_killed_for_real_it_loses_the_tasks_in_flight_and_no_others(
    world: MakeWorld,
) -> None:
    here = await world(timing=Timing(tokens_per_second=200))
    few = {"engine": {"max_concurrent": 2}}
    file = write_recipe(here.folder, merged(here.tables, few))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "engine.cli", "sample", str(file),
        "--output", str(here.folder / "kept"), "--n", "12",
    )  # fmt: skip
    lines = here.folder / "kept.progress.jsonl"
    await until(lambda: lines.exists() and lines.read_text().count("\n") >= 4, "some tasks")
    process.kill()
    await process.wait()
    assert here.tools.live
    done = {f"s{row['position']:07d}" for row in progress(here)}
    seen = len(here.sampler.requests)
    told = await collect(here, n=12, changes=few)
    again = {str(s.body["routing_key"]).partition("-")[0] for s in here.sampler.requests[seen:]}
    assert not again & done
    assert told.splitlines()[0] == "12 of 12 tasks: 12 kept, 0 bad rows"
    assert sorted(t.id for t in kept(here)) == [f"s{number:07d}-0" for number in range(12)]
    assert not here.tools.live


async def test_the_filter_of_the_documentation(world: MakeWorld) -> None:
    page = Path(__file__).parents[3] / "docs" / "2-your-own-run.md"
    (code,) = re.findall(
        r"```python\n(def good\(trajectory\):\n.*?)```", page.read_text(), re.DOTALL
    )
    here = await world()
    (here.folder / "good.py").write_text(code)
    told = await collect(here, n=2, keep="good.py:good", export=True)
    assert told.splitlines()[0] == "2 of 2 tasks: 2 kept, 0 bad rows"


@pytest.mark.parametrize(
    ("changes", "options", "says"),
    [
        ({"task": {"reward": "task.py:short"}}, {}, "was begun with reward"),
        ({"sampler": {"temperature": 0.5}}, {}, "was begun with sampling"),
        ({}, {"tasks": "other.jsonl"}, "was begun with tasks 'task.py:training seed 0'"),
        ({}, {"per_task": 2}, "was begun with --per-task '1', not '2'"),
    ],
)
async def test_another_recipe_or_other_tasks_are_refused(
    world: MakeWorld, changes: dict[str, Any], options: dict[str, Any], says: str
) -> None:
    here = await world()
    await collect(here)
    (here.folder / "other.jsonl").write_text('{"prompt": "what?"}\n' * 4)
    with pytest.raises(StartupError, match=says):
        await collect(here, changes=changes, **options)


async def test_a_file_that_is_something_else_is_left_alone(world: MakeWorld) -> None:
    here = await world()
    (here.folder / "kept").write_text("precious")
    with pytest.raises(StartupError, match="is there already; choose another --output"):
        await collect(here)
    assert (here.folder / "kept").read_text() == "precious"


async def test_two_at_once_are_refused(world: MakeWorld) -> None:
    here = await world()
    other = Store(here.folder / "kept", export=False)
    await other.open({})
    with pytest.raises(StartupError, match="is written by another `engine sample`"):
        await collect(here)
    other.close()


async def test_other_weights_of_the_same_name_are_told_by_their_folder(world: MakeWorld) -> None:
    here = await world()
    await collect(here)
    other = {"model_path": str(here.weights("other")), "weight_version": "default"}
    async with aiohttp.ClientSession() as http:
        await http.post(f"{here.sampler.url}/update_weights_from_disk", json=other)
    with pytest.raises(StartupError, match=r"begun with weights 'default of .*weights/other'"):
        await collect(here)


async def test_samplers_with_different_weights_are_refused(world: MakeWorld) -> None:
    here = await world()
    async with ScriptedSampler(script=lambda _: (), weight_version="new.3") as second:
        urls = [here.sampler.url, second.url]
        with pytest.raises(StartupError, match=r"different weights, default at .*, new\.3 at"):
            await collect(here, changes={"sampler": {"endpoints": urls}})


async def test_nothing_is_sampled_from_weights_that_came_meanwhile(world: MakeWorld) -> None:
    """It waits until the sampler serves what it served at the start."""
    here = await world(timing=Timing(tokens_per_second=200))
    work = asyncio.create_task(collect(here, changes={"engine": {"max_concurrent": 1}}))
    await until(lambda: len(here.sampler.requests) >= 2, "a request")
    here.sampler.scheduler.rename_weights("other.1")
    await asyncio.sleep(0.7)
    assert not work.done()
    here.sampler.scheduler.rename_weights("default")
    await work
    assert {str(v) for t in kept(here) for v in t.weight_versions} == {"default.0"}
    assert len(kept(here)) == 4


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("pass", "returned None for .*: return True"),
        ("return 1 / 0", "raised ZeroDivisionError"),
        ("return trajectory.reward", "returned 1.0 for"),
    ],
)
async def test_a_filter_that_does_not_say_ends_it(world: MakeWorld, body: str, says: str) -> None:
    here = await world()
    with pytest.raises((EngineError, BaseExceptionGroup)) as caught:
        await collect(here, keep=keep(here, body))
    error: BaseException = caught.value
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, EngineError)
    assert re.search(says, str(error))


async def test_bad_rows_are_counted_and_cost_only_themselves(world: MakeWorld) -> None:
    here = await world()
    (here.folder / "some.jsonl").write_text(
        '{"id": "a", "prompt": "1?"}\n{"id": "b"}\nnot JSON\n{"id": "d", "prompt": "4?"}\n'
    )
    told = await collect(here, n=None, tasks="some.jsonl")
    assert told.splitlines()[0] == "4 of 4 tasks: 2 kept, 2 bad rows"
    assert "some.jsonl:3" in told
    assert sorted(t.task.id for t in kept(here)) == ["a", "d"]


async def test_a_task_that_no_service_takes_is_a_bad_row(world: MakeWorld) -> None:
    here = await world()
    here.tools.open_faults = [ServiceError(reasons.ERROR_REASON_INVALID_REQUEST, "no such picture")]
    told = await collect(here, n=3, changes={"engine": {"max_concurrent": 1}})
    assert told.splitlines()[0] == "3 of 3 tasks: 2 kept, 1 bad row"


async def test_more_tasks_than_the_file_has_are_refused(world: MakeWorld) -> None:
    here = await world()
    (here.folder / "some.jsonl").write_text('{"prompt": "1?"}\n')
    with pytest.raises(StartupError, match=r"--n 4: some\.jsonl has 1 rows"):
        await collect(here, tasks="some.jsonl")
    with pytest.raises(StartupError, match="--n: a task function has no end"):
        await collect(here, n=None, output=here.folder / "second")


async def test_on_a_full_disk_it_waits(world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "FULL_SECONDS", 0.05)
    here = await world()
    unfinished = here.folder / "kept.unfinished"
    unfinished.symlink_to("/dev/full")
    work = asyncio.create_task(collect(here, n=2))
    await until(lambda: len(here.sampler.requests) >= 4, "the trajectories")
    await asyncio.sleep(0.2)
    assert not work.done()
    unfinished.unlink()
    assert (await work).startswith("2 of 2 tasks: 2 kept")
    assert len(kept(here)) == 2


async def test_masked_ones_do_not_stay(world: MakeWorld) -> None:
    here = await world()
    told = await collect(here, n=2, changes={"task": {"stops": {"answered": "mask"}}})
    assert told.splitlines()[0] == "2 of 2 tasks: 0 kept, 2 masked, 0 bad rows"
    assert kept(here) == []


async def test_the_export_tells_a_tagged_trajectory_as_messages(world: MakeWorld) -> None:
    here = await world()
    told = await collect(here, n=1, export=True)
    (line,) = (here.folder / "kept.jsonl").read_text().splitlines()
    assert json.loads(line) == {
        "id": "s0000000-0",
        "messages": [
            {"role": "user", "content": "what is 0+1?"},
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [
                    {
                        "id": "call_0_0",
                        "type": "function",
                        "function": {"name": "python", "arguments": '{"code": "1+1"}'},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "call_0_0", "content": "2"},
            {"role": "assistant", "content": "<answer> 2</answer>"},
        ],
    }
    assert told.splitlines()[-1] == str(here.folder / "kept.jsonl")


async def test_what_messages_cannot_tell_is_counted(world: MakeWorld) -> None:
    def script(_: ScriptRequest) -> Sequence[int]:
        return here.codec.encode("1+1</python>")

    here = await world(script=script)
    told = await collect(here, n=1, export=True)
    assert len(kept(here)) == 1
    assert (here.folder / "kept.jsonl").read_text() == ""
    assert "without 1 that messages cannot tell: 1 a call that no tool understood" in told


async def test_a_protocol_that_is_no_chat_is_not_exported(world: MakeWorld) -> None:
    here = await world()
    (here.folder / "mine.py").write_text("class Mine:\n    pass\n")
    with pytest.raises(StartupError, match=r"--export jsonl: trajectories of \./mine\.py:Mine"):
        await collect(here, export=True, changes={"task": {"protocol": "./mine.py:Mine"}})


ADD = '<tool_call>\n{"name": "add", "arguments": {"a": %d}}\n</tool_call>'


def parallel_add() -> Any:
    tool = tool_pb2.ToolDescriptor()
    tool.CopyFrom(JSON_CALL)
    tool.parallel_calls = True
    return tool


@pytest.mark.parametrize(
    ("replies", "options", "told"),
    [
        pytest.param(
            [f"let me see{ADD % 1}", "It is 2.<|im_end|>"],
            {},
            [("let me see", [1]), ("It is 2.", [])],
            id="one call",
        ),
        pytest.param(
            [f"{ADD % 1}\n{ADD % 2}<|im_end|>", "It is 2.<|im_end|>"],
            {"parallel": True},
            [("", [1, 2]), ("It is 2.", [])],
            id="two calls",
        ),
    ],
)
async def test_the_export_tells_a_chat_as_messages(
    world: MakeWorld, replies: list[str], options: dict[str, Any], told: list[Any]
) -> None:
    """And what it tells is rendered to the very ids of the trajectory, where the policy wrote as
    the protocol would."""

    def script(request: ScriptRequest) -> Sequence[int]:
        said = here.codec.decode(request.input_ids)
        return here.codec.encode(replies["<|im_start|>tool" in said])

    double = ToolDouble(
        lambda request: text(f"{request.arguments['a']:g} and one", tool="add"),
        tools=[parallel_add()],
    )
    task = {"protocol": "engine.protocols.chat:Chat", "protocol_options": options}
    here = await world(script=script, tools=double, task=task)
    await collect(here, n=1, export=True)
    (line,) = (here.folder / "kept.jsonl").read_text().splitlines()
    found = json.loads(line)
    assert [tool["function"]["name"] for tool in found["tools"]] == ["add"]
    messages = found["messages"]
    wrote = [one for one in messages if one["role"] == "assistant"]
    assert [
        (one["content"], [json.loads(c["function"]["arguments"])["a"] for c in calls])
        for one in wrote
        for calls in [one.get("tool_calls", [])]
    ] == told
    read = [(one["tool_call_id"], one["content"]) for one in messages if one["role"] == "tool"]
    assert read == [(f"call_0_{i}", f"{a} and one") for i, a in enumerate(told[0][1])]
    if not options:
        (trajectory,) = kept(here)
        runs = Chat().demonstration(messages, here.codec, [spec(parallel_add(), "python")])
        ids = [token for _, run in runs for token in run]
        assert ids == list(trajectory.sequences[0].token_ids)


async def test_a_tool_with_a_tag_that_is_called_by_its_name_is_exported(world: MakeWorld) -> None:
    call = '<tool_call>{"name": "python", "arguments": {"code": "1+1"}}</tool_call>'

    def script(request: ScriptRequest) -> Sequence[int]:
        said = here.codec.decode(request.input_ids)
        return here.codec.encode("2<|im_end|>" if "<|im_start|>tool" in said else call)

    here = await world(script=script, task={"protocol": "engine.protocols.chat:Chat"})
    await collect(here, n=1, export=True)
    messages = json.loads((here.folder / "kept.jsonl").read_text())["messages"]
    (told,) = (one for one in messages if one.get("tool_calls"))
    (made,) = told["tool_calls"]
    assert json.loads(made["function"]["arguments"]) == {"code": "1+1"}
    assert told["content"] == ""


async def test_an_exported_tagged_conversation_renders_to_the_same_ids(world: MakeWorld) -> None:
    here = await world()
    await collect(here, n=1, export=True)
    (trajectory,) = kept(here)
    found = json.loads((here.folder / "kept.jsonl").read_text())
    runs = Tagged().demonstration(found["messages"], here.codec)
    ids = [token for _, run in runs for token in run]
    assert ids == list(trajectory.sequences[0].token_ids)


async def test_text_between_calls_is_not_dropped_silently(world: MakeWorld) -> None:
    reply = f"{ADD % 1} and then {ADD % 2}<|im_end|>"

    def script(request: ScriptRequest) -> Sequence[int]:
        said = here.codec.decode(request.input_ids)
        return here.codec.encode("2.<|im_end|>" if "<|im_start|>tool" in said else reply)

    double = ToolDouble(lambda _: text("2", tool="add"), tools=[parallel_add()])
    task = {"protocol": "engine.protocols.chat:Chat", "protocol_options": {"parallel": True}}
    here = await world(script=script, tools=double, task=task)
    told = await collect(here, n=1, export=True)
    assert "without 1 that messages cannot tell: 1 text between or after calls" in told
