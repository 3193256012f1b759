"""`POST /get_observation` over real HTTP: what runs, how often, and when it ends."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from tests.support.callers import asking_as
from toolsvc.errors import Reason, Refused
from toolsvc.host.host import Host
from toolsvc.plugin.tool import LiveState, Tool
from toolsvc.sources.verltool.http import ObservationServer
from toolsvc.sources.verltool.trajectories import Action, Trajectories
from toolsvc.types import Call, SessionInfo
from toolwright.rpc.errors import ListenError


class Counted(LiveState):
    def __init__(self, tool: "Tally", first: Any) -> None:
        self._tool = tool
        self.count = 0
        self.step = first

    @property
    def ready(self) -> bool:
        return self._tool.refuses is None

    async def prepare(self) -> None:
        refuses, self._tool.refuses = self._tool.refuses, None
        if refuses is not None:
            raise Refused(refuses, "it cannot", retry_after=self._tool.retry_after)


class Tally(Tool):
    """Counts its calls, and waits where the action says so."""

    name = "tally"
    stateful = True

    def __init__(self) -> None:
        self.closed = 0
        self.called = asyncio.Event()
        self.go_on = asyncio.Event()
        self.refuses: Reason | None = None
        self.retry_after: float | None = None

    async def open(self, session: SessionInfo) -> Counted:
        return Counted(self, session.metadata.get("first", 1))

    async def call(self, state: Counted, call: Call) -> str:
        self.called.set()
        if call.arguments["text"] == "wait":
            await self.go_on.wait()
        state.count += state.step
        return f"{call.arguments['text']} {state.count}"

    async def close(self, state: Counted) -> None:
        self.closed += 1


class Trainer:
    """Sends what VerlTool's agent loop sends, one trajectory a request."""

    def __init__(self, session: aiohttp.ClientSession, port: int) -> None:
        self._session = session
        self._url = f"http://127.0.0.1:{port}/get_observation"

    async def send(self, **body: Any) -> tuple[int, Any]:
        async with self._session.post(self._url, json=body) as answer:
            return answer.status, await answer.json()

    async def act(self, text: str, trajectory: str = "t", **more: Any) -> Any:
        status, body = await self.send(
            trajectory_ids=[trajectory],
            actions=[f"<tally>{text}</tally>"],
            finish=[False],
            is_last_step=[False],
            **{"extra_fields": [{}], **more},
        )
        assert status == 200, body
        return body["observations"][0]

    async def finish(self, trajectory: str = "t") -> Any:
        last = {"actions": [""], "finish": [True], "is_last_step": [True]}
        status, body = await self.send(trajectory_ids=[trajectory], **last)
        assert status == 200
        return body


@pytest.fixture
async def tally() -> Tally:
    return Tally()


@pytest.fixture
async def host(tally: Tally) -> AsyncIterator[Host]:
    async with Host([tally]) as running:
        yield running


@pytest.fixture
async def trainer(host: Host) -> AsyncIterator[Trainer]:
    async with (
        ObservationServer(host, "127.0.0.1:0", insecure=False) as server,
        aiohttp.ClientSession() as session,
    ):
        yield Trainer(session, server.port)


async def test_a_trajectory_from_its_first_action_to_its_end(
    trainer: Trainer, host: Host, tally: Tally
) -> None:
    assert await trainer.act("a", extra_fields=[{"first": 10}]) == "a 10"
    assert await trainer.act("b") == "b 20"
    assert len(host.session_ids) == 1
    ended = await trainer.finish()
    assert (ended["observations"], ended["dones"], ended["valids"]) == ([""], [True], [True])
    assert host.session_ids == []
    assert tally.closed == 1
    assert (await trainer.finish())["dones"] == [True]


async def test_half_a_surrogate_pair_of_one_action_leaves_the_others_of_its_request(
    trainer: Trainer,
) -> None:
    status, body = await trainer.send(
        trajectory_ids=["a", "b"], actions=["<tally>x</tally>", "<tally>y\ud800</tally>"]
    )
    assert (status, body["observations"]) == (200, ["x 1", "y? 1"])
    status, _ = await trainer.send(trajectory_ids=["a", "b"], actions=["\ud800"])
    assert status == 422


async def test_a_retry_joins_the_action_whose_caller_went_away(
    trainer: Trainer, tally: Tally
) -> None:
    first = asyncio.create_task(trainer.act("wait"))
    await tally.called.wait()
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    retry = asyncio.create_task(trainer.act("wait"))
    tally.go_on.set()
    assert await retry == "wait 1"
    assert await trainer.act("wait") == "wait 2"


async def test_a_retry_gets_the_answer_that_nobody_fetched(host: Host) -> None:
    trajectories = Trajectories(host)
    action = Action(text="<tally>a</tally>", extra={}, last_step=False)
    (turn, first), (same, again) = [await trajectories.act("t", action) for _ in range(2)]
    assert same is turn
    assert again is first
    turn.delivered = True
    assert (await trajectories.act("t", action))[1] is not first


async def test_a_turn_number_tells_a_retry_from_a_repetition(trainer: Trainer) -> None:
    assert await trainer.act("a", turn_ids=[0]) == "a 1"
    assert await trainer.act("a", turn_ids=[0]) == "a 1"
    assert await trainer.act("a", turn_ids=[1]) == "a 2"
    reused = await trainer.act("other", turn_ids=[1])
    assert "with another request" in reused["error"]


async def test_a_batch_keeps_its_order_and_each_trajectory_its_own(trainer: Trainer) -> None:
    status, body = await trainer.send(
        trajectory_ids=["a", "b", "a", "b"],
        actions=["<tally>1</tally>", "<tally>2</tally>", "<tally>3</tally>", "no tag"],
        extra_fields=[{}, {"first": 5}, {}, {"finish": True}],
    )
    assert status == 200
    assert body["observations"] == ["1 1", "2 5", "3 2", ""]
    assert body["dones"] == [False, False, False, True]


async def test_what_may_run_later_is_asked_for_again_and_nothing_runs_twice(
    trainer: Trainer, tally: Tally
) -> None:
    assert await trainer.act("a", "other") == "a 1"
    tally.refuses, tally.retry_after = Reason.BACKEND_DOWN, 1.0
    batch = {"trajectory_ids": ["t", "other"], "actions": ["<tally>b</tally>"] * 2}
    status, body = await trainer.send(**batch)
    assert (status, body["detail"]) == (503, "it cannot")
    status, body = await trainer.send(**batch)
    assert status == 200
    assert sorted(body["observations"]) == ["b 1", "b 2"]


async def test_what_can_never_run_ends_its_trajectory(trainer: Trainer, tally: Tally) -> None:
    tally.refuses = Reason.SESSION_LOST
    status, body = await trainer.send(trajectory_ids=["t"], actions=["<tally>b</tally>"])
    assert status == 200
    assert body["observations"] == [{"obs": "", "error": "it cannot"}]
    assert (body["dones"], body["valids"]) == ([True], [False])


@pytest.mark.parametrize(
    "body",
    [
        {},
        [],
        {"trajectory_ids": [], "actions": []},
        {"trajectory_ids": ["a"], "actions": []},
        {"trajectory_ids": ["a"], "actions": ["x"], "extra_fields": [{}, {}]},
        {"trajectory_ids": ["a"], "actions": ["x"], "finish": [True, False]},
        {"trajectory_ids": ["a"], "actions": ["x"], "turn_ids": [-1]},
    ],
)
async def test_a_request_that_makes_no_sense_is_refused(trainer: Trainer, body: Any) -> None:
    async with trainer._session.post(trainer._url, json=body) as answer:
        assert answer.status == 422


async def test_sessions_that_ended_are_forgotten(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolsvc.sources.verltool.trajectories._SWEEP_AT", 2)
    trajectories = Trajectories(host)
    action = Action(text="<tally>a</tally>", extra={}, last_step=False)
    for name in "abcd":
        await trajectories.act(name, action)
        for session in host.session_ids:
            await host.close(session, "its lease was not renewed")
    assert len(trajectories) == 2


async def test_off_loopback_it_wants_a_token_or_leave(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TOOLWRIGHT_TOKEN", raising=False)
    with pytest.raises(ListenError, match="--insecure"):
        ObservationServer(host, "0.0.0.0:0", insecure=False)
    with pytest.raises(ListenError, match="host:port"):
        ObservationServer(host, "nowhere", insecure=False)


async def test_where_the_host_is_full_what_was_left_alone_for_long_gives_way(
    tally: Tally, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolsvc.sources.verltool.trajectories.GIVE_WAY_SECONDS", 0.0)
    action = Action(text="<tally>a</tally>", extra={}, last_step=False)
    waiting = Action(text="<tally>wait</tally>", extra={}, last_step=False)
    async with Host([tally], max_sessions=2) as host:
        trajectories = Trajectories(host)
        busy = asyncio.create_task(trajectories.act("busy", waiting))
        await tally.called.wait()
        for name in ("never finished", "new"):
            assert (await trajectories.act(name, action))[1].result.error is None
        with pytest.raises(Refused) as gone:
            await trajectories.act("never finished", action)
        assert gone.value.reason is Reason.SESSION_CLOSED
        tally.go_on.set()
        assert (await busy)[1].result.error is None


async def test_where_the_host_is_full_nobody_gives_way_at_once(tally: Tally) -> None:
    action = Action(text="<tally>a</tally>", extra={}, last_step=False)
    async with Host([tally], max_sessions=1) as host:
        trajectories = Trajectories(host)
        await trajectories.act("first", action)
        with pytest.raises(Refused) as full:
            await trajectories.act("second", action)
        assert full.value.reason is Reason.TOO_MANY_SESSIONS
        assert (await trajectories.act("first", action))[1].result.error is None


async def test_a_name_of_a_trajectory_is_its_callers_own(host: Host) -> None:
    trajectories = Trajectories(host)
    action = Action(text="<tally>a</tally>", extra={}, last_step=False)
    told = []
    for owner in ("alice", "bob", "alice", ""):
        with asking_as(owner):
            turn, _ = await trajectories.act("t", action)
            turn.delivered = True
            told.append(turn.request.session_id)
    assert told[0] == told[2]
    assert len(set(told)) == 3
    with asking_as("bob"):
        await trajectories.finish("t")
    assert set(host.session_ids) == {told[0], told[3]}


async def test_names_are_bounded(trainer: Trainer) -> None:
    status, body = await trainer.send(trajectory_ids=["t" * 20_000], actions=["x"])
    assert status == 422
    assert "1024" in body["detail"]
