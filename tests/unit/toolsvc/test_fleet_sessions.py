"""Where sessions are placed, and what is known of those that ended."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolsvc import Tool
from toolsvc.errors import Reason, Refused, StartError
from toolsvc.fleet.ray.cluster import nodes as nodes_of_ray
from toolsvc.fleet.ray.nodes import check_reach, check_room
from toolsvc.fleet.resources import GIB, NOTHING, Resources, declared, needs_own_host
from toolsvc.fleet.sessions import Placed, SessionTable
from toolsvc.types import OpenRequest

ROOM = Resources(cpus=2, memory_bytes=4 * GIB)


def wish(name: str, owner: str = "o") -> OpenRequest:
    return OpenRequest(
        session_id=name, owner=owner, lease=60, tools=(), metadata={}, queue_limit=30, digest=b""
    )


def table(*hosts: str, most: int = 1000, room: Resources = ROOM) -> SessionTable[str]:
    sessions: SessionTable[str] = SessionTable(most, room)
    for host in hosts:
        sessions.join(host)
    return sessions


def refusal(sessions: SessionTable[str], name: str) -> Reason:
    with pytest.raises(Refused) as refused:
        sessions.find(name)
    return refused.value.reason


def test_a_host_that_joins_later_takes_the_next() -> None:
    sessions = table("a")
    for number in range(3):
        sessions.place(wish(str(number)), NOTHING)
    sessions.join("b")
    assert [sessions.place(wish(name), NOTHING).host for name in "xyz"] == ["b", "b", "b"]


def test_a_host_that_is_lost_takes_its_own_sessions_alone() -> None:
    sessions = table("a", "b")
    placed = [sessions.place(wish(str(number)), NOTHING) for number in range(10)]
    for one in placed:
        one.opened = True
    left: list[Placed[str]] = []
    sessions.leaving.append(left.append)
    assert sessions.lose("a", "its node died") == 5
    assert {one.host for one in left} == {"a"}
    for one in placed:
        if one.host == "a":
            assert refusal(sessions, one.session_id) is Reason.SESSION_LOST
        else:
            assert sessions.find(one.session_id) is one
    assert sessions.place(wish("new"), NOTHING).host == "b"
    assert sessions.lose("b", "its node died") == 5
    assert refusal(sessions, "new") is Reason.SESSION_NOT_FOUND  # Nobody was told that it is open.
    with pytest.raises(Refused, match="no host lives") as refused:
        sessions.place(wish("newer"), NOTHING)
    assert refused.value.retry_after is not None


def test_what_sessions_declare_fits_into_their_host() -> None:
    sessions = table("a", "b")
    third = Resources(cpus=0.7)
    hosts = [sessions.place(wish(name), third).host for name in "1234"]
    assert sorted(map(str, hosts)) == ["a", "a", "b", "b"]
    with pytest.raises(Refused, match=r"no host has room for 0.7 CPUs more") as refused:
        sessions.place(wish("5"), third)
    assert refused.value.reason is Reason.TOO_MANY_SESSIONS
    assert sessions.place(wish("free"), NOTHING).host in ("a", "b")
    sessions.end(sessions.find("2"), "it was closed")
    assert sessions.place(wish("5"), third).host == hosts[1]


@given(st.lists(st.integers(1, 9), max_size=60))
def test_no_host_is_given_more_than_it_has(tenths: list[int]) -> None:
    sessions = table("a", "b", room=Resources(cpus=1))
    taken = Counter[Any]()
    for number, tenth in enumerate(tenths):
        try:
            placed = sessions.place(wish(str(number)), Resources(cpus=tenth / 10))
        except Refused:
            assert all(one + tenth > 10 for one in (taken["a"], taken["b"]))
        else:
            taken[placed.host] += tenth
    assert max(taken.values(), default=0) <= 10


def test_the_service_holds_no_more_than_it_may() -> None:
    sessions = table("a", most=2)
    sessions.place(wish("1"), NOTHING)
    own = sessions.place_alone(wish("2"), Resources(gpus=1))
    for place in (sessions.place, sessions.place_alone):
        with pytest.raises(Refused, match="2 sessions are open, the most"):
            place(wish("3"), NOTHING)
    sessions.drop(own)
    sessions.place(wish("3"), NOTHING)


def test_what_was_dropped_is_unknown_and_what_ended_stays_ended() -> None:
    sessions = table("a")
    first = sessions.place(wish("1"), NOTHING)
    sessions.drop(first)
    assert sessions.get("1") is None
    assert refusal(sessions, "1") is Reason.SESSION_NOT_FOUND
    again = sessions.place(wish("1"), NOTHING)
    sessions.end(first, "too late")
    assert sessions.find("1") is again
    sessions.end(again, "it was closed")
    assert refusal(sessions, "1") is Reason.SESSION_CLOSED
    with pytest.raises(Refused, match="session 1 has ended: it was closed"):
        sessions.get("1")
    sessions.lose("a", "its node died")
    assert refusal(sessions, "1") is Reason.SESSION_CLOSED


def test_an_actor_of_its_own_takes_its_session_along() -> None:
    sessions = table("a")
    own = sessions.place_alone(wish("own"), Resources(gpus=1))
    assert own.host is None
    own.host, own.opened = "actor", True
    assert sessions.on("actor") == [own]
    assert sessions.of("o") == [own]
    assert sessions.lose("actor", "its node died") == 1
    assert refusal(sessions, "own") is Reason.SESSION_LOST


@pytest.mark.parametrize(
    ("needs", "alone"),
    [
        (NOTHING, False),
        (Resources(cpus=2, memory_bytes=GIB), False),
        (Resources(memory_bytes=GIB + 1), True),
        (Resources(gpus=0.1), True),
        (Resources(cpus=2.5), True),  # more than a whole host
    ],
)
def test_who_needs_an_actor_of_its_own(needs: Resources, alone: bool) -> None:
    assert needs_own_host(needs, ROOM) is alone


def test_hosts_must_fit_on_the_nodes_one_by_one() -> None:
    nodes = [Resources(cpus=3, memory_bytes=64 * GIB), Resources(cpus=5, memory_bytes=8 * GIB)]
    check_room(3, ROOM, nodes)
    check_room(1000, NOTHING, nodes)
    with pytest.raises(StartError, match="no room for 4 hosts of 2 CPUs, 4 GiB"):
        check_room(4, ROOM, nodes)


def test_a_ray_that_does_not_answer_is_a_start_error() -> None:
    with pytest.raises(StartError, match="Ray does not say which nodes it has"):
        nodes_of_ray()  # No cluster was connected to.


class Hungry(Tool):
    name = "hungry"
    gpus = 2
    memory_bytes = 8 * GIB


def test_a_tool_must_fit_on_one_node() -> None:
    enough = Resources(cpus=1, gpus=2, memory_bytes=8 * GIB)
    check_reach(Hungry(), [NOTHING, enough])
    with pytest.raises(StartError, match="tool 'hungry' asks for 2 GPUs, 8 GiB a session"):
        check_reach(Hungry(), [Resources(gpus=2), Resources(memory_bytes=9 * GIB)])


@pytest.mark.parametrize("what", [{"cpus": -1.0}, {"gpus": 1.5}])
def test_what_nobody_can_have_is_refused(what: dict[str, float]) -> None:
    odd = type("Odd", (Tool,), {"name": "odd", **what})()
    with pytest.raises(StartError, match="tool 'odd' asks for"):
        declared(odd)


def test_a_fork_is_placed_beside_its_parent_and_needs_as_much() -> None:
    sessions = table("a", "b")
    parent = sessions.place(wish("1"), Resources(cpus=1))
    child = sessions.place_beside(wish("2"), parent)
    assert (child.host, child.needs) == (parent.host, parent.needs)
    with pytest.raises(Refused) as full:
        sessions.place_beside(wish("3"), parent)
    assert full.value.reason is Reason.TOO_MANY_SESSIONS
    assert full.value.retry_after


def test_a_session_with_an_actor_of_its_own_is_not_forked() -> None:
    sessions = table("a")
    own = sessions.place_alone(wish("own"), Resources(gpus=1))
    for host in (None, "its own"):
        own.host = host
        with pytest.raises(Refused) as refused:
            sessions.place_beside(wish("2"), own)
        assert refused.value.reason is Reason.NOT_SERVED
    assert len(sessions) == 1
