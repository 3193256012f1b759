"""Rule 2: same call id, same answer; the effect happens at most once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolsvc.host.ledger import CallIdReused, Ledger, ResultForgotten


def test_a_call_in_flight_is_not_forgotten_by_a_later_turn() -> None:
    ledger: Ledger[str] = Ledger()
    ledger.open("a", b"1", 0, "handle")
    ledger.open("b", b"2", 1, "other")
    assert ledger.find("a", b"1", 0) == "handle"
    ledger.settle("a")
    assert ledger.find("a", b"1", 0) == "handle"
    ledger.open("c", b"3", 2, "third")
    with pytest.raises(ResultForgotten):
        ledger.find("a", b"1", 0)


def test_the_id_of_a_call_that_has_run_is_never_released() -> None:
    ledger: Ledger[str] = Ledger()
    ledger.open("a", b"1", 0, "handle")
    ledger.begin("a")
    assert (ledger.get("a"), ledger.has_run("a")) == ("handle", False)
    ledger.ran("a")
    assert (ledger.get("a"), ledger.has_run("a")) == (None, True)
    with pytest.raises(ValueError, match="a has run"):
        ledger.release("a")
    assert ledger.find("a", b"1", 0) == "handle"
    assert ledger.in_flight() == ["handle"]


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["call", "settle", "release"]),
        st.integers(0, 5),
        st.integers(0, 3),
        st.sampled_from([b"x", b"y"]),
    ),
    max_size=60,
)


@given(_STEPS)
def test_no_id_ever_runs_twice_unless_it_was_released(steps: list[tuple]) -> None:
    ledger: Ledger[int] = Ledger()
    ran: dict[str, bytes] = {}
    in_flight: set[str] = set()
    for action, number, turn, digest in steps:
        name = f"call-{number}"
        if action == "settle":
            ledger.settle(name)
            in_flight.discard(name)
        elif action == "release" and name in in_flight:
            ledger.release(name)
            in_flight.discard(name)
            del ran[name]
        elif action == "call":
            try:
                found = ledger.find(name, digest, turn)
            except CallIdReused:
                assert ran[name] != digest
                continue
            except ResultForgotten:
                continue
            if found is None:
                assert name not in ran
                ledger.open(name, digest, turn, number)
                ran[name] = digest
                in_flight.add(name)
            else:
                assert ran[name] == digest


def test_what_was_released_did_not_begin() -> None:
    ledger: Ledger[str] = Ledger()
    ledger.open("a", b"1", 0, "handle")
    ledger.begin("a")
    ledger.release("a")
    assert ledger.began == ()


def test_what_is_inherited_ran_and_runs_no_more_whatever_its_turn() -> None:
    ledger: Ledger[str] = Ledger()
    ledger.inherit(["a", "b"])
    assert ledger.began == ("a", "b")
    with pytest.raises(CallIdReused):
        ledger.find("a", b"1", 9)
    assert ledger.find("c", b"1", 0) is None
    assert len(ledger) == 0
