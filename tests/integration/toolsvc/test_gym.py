"""`gym:` with real environments in real jails: episodes, seeds, forks, and what goes wrong."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.integration.toolsvc.conftest import Service
from tests.support.hosts import calling, opening, refused, said
from toolsvc.errors import Reason, StartError
from toolsvc.host.host import Host
from toolsvc.sandbox.config import MIB, SandboxConfig
from toolsvc.sources.episodes import digest
from toolsvc.sources.gym.gym_tool import GymOptions
from toolsvc.sources.gym.source import GymSource
from toolsvc.types import CallRequest, ForkRequest, Recorded
from toolwright.types import ToolErrorKind

ROOT = Path(__file__).resolve().parents[3]
ODD = ROOT / "tests/support/odd_worlds.py"
SMALL = SandboxConfig(shards=1, ready=1, memory_bytes=512 * MIB)
LAKE = "FrozenLake-v1?is_slippery=false"
TO_THE_GOAL = ("down", "down", "right", "right", "down", "right")
MOVES = GymOptions(actions=("left", "down", "right", "up"))

pytestmark = [pytest.mark.quick, pytest.mark.asyncio(loop_scope="module")]
pytest.importorskip("gymnasium", reason="gymnasium is not installed: `make setup` installs it")


class Played:
    """One tool of the source on a host, and what tests say to it."""

    def __init__(self, host: Host) -> None:
        self.host = host

    async def open(self, **metadata: Any) -> str:
        name = uuid.uuid4().hex
        await self.host.open(opening(name, metadata=metadata))
        return name

    async def act(self, session: str, action: str, **more: Any) -> Recorded:
        call_id = uuid.uuid4().hex
        request: CallRequest = calling(
            call_id, session=session, tool="act", arguments={"action": action},
            digest=call_id.encode(), **more
        )  # fmt: skip
        answer = await self.host.call(request)
        assert isinstance(answer, Recorded)
        return answer

    async def texts(self, session: str, *actions: str) -> list[str]:
        return [said(await self.act(session, action)) for action in actions]


async def playing(where: str, options: GymOptions | None = None) -> AsyncIterator[Played]:
    tools = await GymSource.tools(where, options or GymOptions(), SMALL)
    async with Host(tools) as host:
        yield Played(host)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lake() -> AsyncIterator[Played]:
    async for played in playing(LAKE, MOVES):
        yield played


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def taxi() -> AsyncIterator[Played]:
    async for played in playing("Taxi-v4"):
        yield played


@pytest.fixture(scope="module")
def worlds() -> Iterator[GymOptions]:
    """A folder with environments of our own, where the jail's account can read them. It has a
    `gymnasium` of its own, so the service's packages are not added."""
    place = next(path for path in ("/opt", "/srv", "/var/tmp") if os.access(path, os.W_OK))
    folder = Path(tempfile.mkdtemp(prefix="toolsvc-test-", dir=place))
    folder.chmod(0o755)
    shutil.copy(ODD, folder)
    (folder / "gymnasium").mkdir()
    yield GymOptions(packages=(str(folder),))
    shutil.rmtree(folder)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def odd(worlds: GymOptions) -> AsyncIterator[Played]:
    async for played in playing("odd_worlds:Odd?greeting=hi", worlds):
        yield played


async def test_an_episode_is_played_to_its_reward_and_not_beyond(lake: Played) -> None:
    session = await lake.open()
    first = said(await lake.act(session, ""))
    assert first.endswith("An action is one of: left, down, right, up.\n\n[S]FFF\nFHFH\nFFFH\nHFFG")
    assert "holes" in first, "the environment's own rules"
    outcomes = [(await lake.act(session, move)).result for move in TO_THE_GOAL]
    assert [one.reward for one in outcomes] == [0, 0, 0, 0, 0, 1]
    assert [one.done for one in outcomes] == [False] * 5 + [True]
    assert said_of(outcomes[0]) == "  (Down)\nSFFF\n[F]HFH\nFFFH\nHFFG"
    after = (await lake.act(session, "left")).result
    assert not after.valid and after.invalid_reason == "the episode is over"


def said_of(result: Any) -> str:
    return "".join(part.text for part in result.observation)


@pytest.mark.parametrize("action", ["sideways", "7", '{"a": 1}', "[" * 10_000])
async def test_an_action_that_is_none_plays_nothing(lake: Played, action: str) -> None:
    session = await lake.open()
    (before,) = await lake.texts(session, "")
    wrong = (await lake.act(session, action)).result
    assert (wrong.valid, wrong.reward) == (False, None)
    assert wrong.invalid_reason == "An action is one of: left, down, right, up."
    assert await lake.texts(session, "") == [before]


async def test_equal_seeds_make_equal_episodes_and_others_differ(taxi: Played) -> None:
    actions = ("", "0", "3", "1", "2")
    first, again, other = [await taxi.open(seed=seed) for seed in (7, 7.0, 8)]
    played = await taxi.texts(first, *actions)
    assert await taxi.texts(again, *actions) == played
    assert await taxi.texts(other, *actions) != played
    assert "{blue:" in played[0] and "\x1b" not in played[0]
    assert (
        await taxi.act(first, "9")
    ).result.invalid_reason == "An action is a number from 0 to 5."


async def test_a_task_names_the_episode_that_it_was_made_of(taxi: Played) -> None:
    seen = await taxi.act(await taxi.open(seed=3), "")
    known = int(seen.result.metrics["opening"])
    assert known == digest(said(seen))
    assert (await taxi.act(await taxi.open(seed=3, opening=known), "1")).result.reward == -1
    with refused(Reason.INVALID_REQUEST) as failure:
        await taxi.act(await taxi.open(seed=4, opening=known), "1")
    assert "does not begin as its task says" in failure.value.message
    for wrong in ({"seed": -1}, {"seed": "7"}, {"seed": 2**31}, {"reset": [1]}, {"opening": 0.5}):
        with refused(Reason.INVALID_REQUEST) as failure:
            await taxi.open(**wrong)
        assert failure.value.subject == next(iter(wrong))


async def test_a_fork_goes_on_from_where_its_parent_is(taxi: Played) -> None:
    parent = await taxi.open(seed=5)
    await taxi.texts(parent, "0", "3")
    child = uuid.uuid4().hex
    await taxi.host.fork(ForkRequest(parent=parent, child=opening(child)))
    moves = ("", "1", "2", "0")
    assert await taxi.texts(child, *moves) == await taxi.texts(parent, *moves)


async def test_what_an_environment_does_wrong_stays_in_its_session(odd: Played) -> None:
    session = await odd.open(seed=2, reset={"level": 9})
    assert await odd.texts(session, "", "print") == ["hi 2 9", "print done"]
    flood = (await odd.act(session, "flood")).result
    assert len(said_of(flood)) <= 100_000 and flood.reward == 0.5
    emoji = (await odd.act(session, "emoji")).result
    assert said_of(emoji) == "\N{SNAKE}" * 100_000
    half = (await odd.act(session, "half")).result
    assert (half.reward, said_of(half)[:2], said_of(half)[-5:]) == (0.5, "a ", " half")
    last = (await odd.act(session, "stop")).result
    assert last.done and last.reward == 0.25


@pytest.mark.parametrize(
    ("action", "kind"), [("sleep", ToolErrorKind.TIMEOUT), ("die", ToolErrorKind.CRASHED)]
)
async def test_a_stopped_action_loses_its_episode(
    odd: Played, action: str, kind: ToolErrorKind
) -> None:
    session = await odd.open()
    stopped = (await odd.act(session, action, run_limit=0.5)).result
    assert stopped.error is not None
    assert (stopped.error.kind, stopped.error.session_lost) == (kind, True)
    again = (await odd.act(session, "go")).result
    assert again.error is not None and again.error.session_lost
    assert await odd.texts(await odd.open(), "go") == ["go done"]


@pytest.mark.parametrize(
    ("action", "why"),
    [("raise", "ValueError: no such door ?"), ("nan", "the environment gave the reward nan")],
)
async def test_a_failed_action_loses_its_episode(odd: Played, action: str, why: str) -> None:
    """The environment may have made half of the step."""
    session = await odd.open()
    failed = (await odd.act(session, action)).result
    assert failed.error is not None
    assert (failed.error.kind, failed.error.session_lost) == (ToolErrorKind.EXCEPTION, True)
    assert said_of(failed) == f"the episode is lost: odd_worlds:Odd failed: {why}"
    again = (await odd.act(session, "go")).result
    assert again.error is not None and again.error.session_lost


async def test_an_environment_that_ignores_its_seed_is_found_out(worlds: GymOptions) -> None:
    async for drawn in playing("odd_worlds:Drawn", worlds):
        known = digest(said(await drawn.act(await drawn.open(), "")))
        with refused(Reason.INVALID_REQUEST) as failure:
            await drawn.act(await drawn.open(opening=known), "go")
        assert "draws at random" in failure.value.fix


@pytest.mark.parametrize(
    ("where", "options", "says"),
    [
        ("", {}, "name an environment"),
        ("Taxi-v4?size", {}, "write arguments as ?size=5"),
        ("textarena/Sudoku-v0", {"actions": ["a"]}, "textarena has none"),
    ],
)
async def test_a_word_that_names_no_environment(
    where: str, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(StartError, match=says.replace("?", r"\?")):
        await GymSource.tools(where, GymOptions(**options), SMALL)


@pytest.mark.parametrize(
    ("where", "options", "says"),
    [
        ("Nowhere-v1", {}, "Nowhere"),
        ("FrozenLake-v1", {"actions": ["left"]}, "1 names for the actions Discrete"),
        ("collections:OrderedDict", {}, "has no attribute 'reset'"),
    ],
)
async def test_a_service_of_an_environment_that_does_not_begin_does_not_start(
    where: str, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(StartError, match=says):
        async for _ in playing(where, GymOptions(**options)):
            pass


def test_tasks_are_written_for_a_running_service(
    start: Callable[..., Service], tmp_path: Path
) -> None:
    service = start("gym:Taxi-v4", "--ready", "1", "--shards", "1")
    file = tmp_path / "tasks.jsonl"
    toolsvc = [sys.executable, "-c", "from toolsvc.cli import main; main()"]
    words = ("tasks", service.address, "--count", "3", "--first", "5", "--output", str(file))
    subprocess.run([*toolsvc, *words], check=True, timeout=120)
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert [(row["id"], row["metadata"]["seed"]) for row in rows] == [
        ("act-5", 5), ("act-6", 6), ("act-7", 7),
    ]  # fmt: skip
    assert len({row["question"] for row in rows}) == 3
    assert [row["metadata"]["opening"] for row in rows] == [digest(row["question"]) for row in rows]


PUBLISHED = {
    "reasoning_gym/leg_counting?max_animals=3": ("how many legs", "no number", 0.0),
    "textarena/FrozenLake-v0": ("Welcome to Frozen Lake!", "[down]", None),
}


@pytest.mark.slow
@pytest.mark.parametrize("where", PUBLISHED)
async def test_published_libraries(where: str) -> None:
    """Equal seeds make equal episodes there too, in jails of their own."""
    packages = ROOT / ".venv-gyms/lib/python3.11/site-packages"
    if not packages.is_dir():
        pytest.skip("there is no .venv-gyms: `make test-gyms` makes it")
    says, action, worth = PUBLISHED[where]
    found = []
    for _ in range(2):
        async for played in playing(where, GymOptions(packages=(str(packages),))):
            session = await played.open(seed=11)
            first = said(await played.act(session, "", queue_limit=120.0))
            outcome = (await played.act(session, action)).result
            found.append((first, said_of(outcome), outcome.done, outcome.reward))
    assert found[0] == found[1]
    assert says in found[0][0]
    if worth is not None:
        assert found[0][2:] == (True, worth)
