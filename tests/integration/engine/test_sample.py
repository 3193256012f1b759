"""`engine sample`: trajectories without a learner, from scripted sampler and tool to the file."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bench.scripted import ScriptedSampler, Timing
from engine.errors import EngineError, StartupError
from engine.offline.collect.command import without_addresses
from engine.offline.collect.store import Store
from engine.offline.enums import Dedupe
from tests.integration.engine.conftest import MakeWorld
from tests.support.collected import collect, keep, kept, progress
from tests.support.dialogue import ANSWER, CALL
from tests.support.policy import write_policy
from tests.support.recipes import merged
from tests.support.waiting import holds_for, until
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.rpc.errors import ServiceError

pytestmark = pytest.mark.quick


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


async def test_the_filter_of_the_documentation(world: MakeWorld) -> None:
    page = Path(__file__).parents[3] / "docs" / "train" / "warm-up.md"
    (code,) = re.findall(
        r"```python\n(def short\(trajectory\):\n.*?)```",
        page.read_text(encoding="utf-8"),
        re.DOTALL,
    )
    here = await world()
    (here.folder / "mine.py").write_text(code, encoding="utf-8")
    told = await collect(here, n=2, keep="mine.py:short", export=True)
    assert told.splitlines()[0] == "2 of 2 tasks: 2 kept, 0 bad rows"


async def test_another_recipe_or_other_tasks_are_refused(world: MakeWorld) -> None:
    """So is a criterion whose file was edited."""
    here = await world()
    reward = {"reward": "graded.py:graded", "reward_options": {"least": 1}}
    for file, text in (
        ("graded.py", "def graded(least):\n    return lambda trajectory: 1.0\n"),
        ("mine.py", "def stays(trajectory):\n    return True\n"),
        ("other.jsonl", '{"prompt": "what?"}\n' * 4),
    ):
        (here.folder / file).write_text(text, encoding="utf-8")
    keep = "mine.py:stays"
    await collect(here, changes={"task": reward}, keep=keep)
    asked = len(here.sampler.requests)

    async def refused(says: str, changes: dict[str, Any] | None = None, **options: Any) -> None:
        changes = merged({"task": reward}, changes or {})
        with pytest.raises(StartupError, match=says):
            await collect(here, changes=changes, **{"keep": keep, **options})

    own = {"reward": "task.py:short", "reward_options": None}
    await refused("was begun with reward", {"task": own})
    await refused("was begun with reward options", {"task": {"reward_options": {"least": 2}}})
    await refused("was begun with sampling", {"sampler": {"temperature": 0.5}})
    await refused("was begun with tasks 'task.py:training seed 0'", tasks="other.jsonl")
    await refused("was begun with --per-task '1', not '2'", per_task=2)
    await refused("was begun with --keep", keep=(keep, "engine.api:rewarded"))
    await refused("was begun with --dedupe 'actions', not 'calls'", dedupe=Dedupe.CALLS)
    await refused("was begun with --shard-size 'one file', not '5'", shard_size=5)
    edited = "def stays(trajectory):\n    return not False\n"
    (here.folder / "again.py").write_text(edited, encoding="utf-8")
    (here.folder / "again.py").replace(here.folder / "mine.py")
    await refused("was begun with files of criteria")
    assert len(here.sampler.requests) == asked


def test_words_of_serve_are_part_of_a_collection_and_addresses_are_not() -> None:
    word = "simulated.endpoint=http://127.0.0.1:{}/v1"
    first, second = ([word.format(p), f"memory:127.0.0.1:{p}"] for p in (20001, 31))
    assert without_addresses(first) == without_addresses(second)
    assert without_addresses(["simulated.seed=0"]) != without_addresses(["simulated.seed=1"])
    assert without_addresses(["a=http://h:1/v1"]) != without_addresses(["a=http://h:1/v2"])


async def test_two_at_once_are_refused(world: MakeWorld) -> None:
    here = await world()
    other = Store(here.folder / "kept")
    await other.open({})
    with pytest.raises(StartupError, match="in use by another `engine sample`"):
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
    await holds_for(0.7, lambda: not work.done(), "the work to wait for the weights")
    here.sampler.scheduler.rename_weights("default")
    await work
    assert {str(v) for t in kept(here) for v in t.weight_versions} == {"default.0"}
    assert len(kept(here)) == 4


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("pass", "returned None for .*: return True"),
        ("return 1 / 0", "raised ZeroDivisionError"),
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
        '{"id": "\\ud800", "prompt": "5?"}\n',
        encoding="utf-8",
    )
    told = await collect(here, n=None, tasks="some.jsonl")
    assert told.splitlines()[0] == "5 of 5 tasks: 2 kept, 3 bad rows"
    assert {row["bad"].partition(":")[2].partition(":")[0] for row in progress(here)} == {
        "", "2", "3", "5",
    }  # fmt: skip
    assert sorted(t.task.id for t in kept(here)) == ["a", "d"]


JOINS = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
CALLED = {"type": "function", "function": {"name": "python", "arguments": {"code": "1"}}}


async def test_a_row_that_no_template_takes_costs_itself(world: MakeWorld, tmp_path: Path) -> None:
    here = await world()
    user = {"role": "user", "content": "q"}
    rows = [
        {"id": "good", "prompt": "1?"},
        {"messages": [user, {"role": "assistant", "content": None, "tool_calls": [CALLED]}, user]},
        {"messages": [{"role": "user", "content": [{"type": "image"}]}]},
        {"messages": [{"role": "user", "content": None}]},
        {"messages": [{"role": "user", "content": 5}]},
        {"id": "parts", "messages": [{**user, "content": [{"type": "text", "text": "2?"}]}]},
    ]
    (here.folder / "odd.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8"
    )
    (here.folder / "odd.py").write_text(
        "from toolwright.types import Task\n"
        "def tasks(seed):\n"
        "    yield Task(id='null', messages=({'role': 'user', 'content': None},))\n"
        "    yield Task(id='key', messages=({'content': 'x'},))\n"
        "    yield Task(id='f', messages=({'role': 'user', 'content': [{'text': 'q'}]},))\n",
        encoding="utf-8",
    )
    joins = {"policy": {"model": str(write_policy(tmp_path / "joins", template=JOINS))}}
    told = await collect(here, n=None, tasks="odd.jsonl", changes=joins)
    assert told.splitlines()[0] == "6 of 6 tasks: 2 kept, 4 bad rows"
    assert sorted(t.task.id for t in kept(here)) == ["good", "parts"]
    said = [row["bad"].partition("odd.jsonl:")[2] for row in progress(here) if row["bad"]]
    assert sorted(line[0] for line in said) == ["2", "3", "4", "5"]
    assert "does not write `tool_calls`, and message 2 has some" in min(said)
    options = {"n": 3, "tasks": "./odd.py:tasks", "output": here.folder / "second"}
    told = await collect(here, changes=joins, **options)
    assert told.splitlines()[0] == "3 of 3 tasks: 1 kept, 2 bad rows"


async def test_a_task_that_no_service_takes_is_a_bad_row(world: MakeWorld) -> None:
    here = await world()
    here.tools.open_faults = [ServiceError(reasons.ERROR_REASON_INVALID_REQUEST, "no such picture")]
    told = await collect(here, n=3, changes={"engine": {"max_concurrent": 1}})
    assert told.splitlines()[0] == "3 of 3 tasks: 2 kept, 1 bad row"


async def test_more_tasks_than_the_file_has_are_refused(world: MakeWorld) -> None:
    here = await world()
    (here.folder / "some.jsonl").write_text('{"prompt": "1?"}\n', encoding="utf-8")
    with pytest.raises(StartupError, match=r"--n 4: some\.jsonl has 1 rows"):
        await collect(here, tasks="some.jsonl")
    with pytest.raises(StartupError, match="--n: a task function has no end"):
        await collect(here, n=None, output=here.folder / "second")
