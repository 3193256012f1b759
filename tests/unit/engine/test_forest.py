"""An outside agent's calls: matching, forks, and the sequences that its record has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from engine.core.trajectory.chain import common_prefix
from engine.core.trajectory.events import (
    Appended,
    Asked,
    Begun,
    Called,
    Ended,
    Replied,
    Rewarded,
    decode,
    encode,
)
from engine.core.trajectory.record import record
from engine.core.trajectory.state import LogError, fold
from learner.maths.aggregation import token_weights
from tests.support.journaled import identity_of
from tests.support.outside import ROOT, SAMPLING, OutsideAgent, digests_of
from toolwright.types import Author, RewardPart, StopReason, Trajectory, ids
from toolwright.wire import trajectory_from_proto, trajectory_to_proto

pytestmark = pytest.mark.quick

OTHER_ROOT = b"s" * 16
STEPS = [*["ask"] * 4, *["end"] * 4, "stream", "stream", "drop", "edit", "publish", "kill", "retry"]


def recorded(agent: OutsideAgent) -> Trajectory:
    agent.add(Ended(reason=StopReason.ANSWERED))
    return record(agent.state, identity_of("g1-0"))


@st.composite
def histories(draw: st.DrawFn) -> OutsideAgent:
    """Calls that continue, edit, repeat, run in parallel, stream and come in two roots. Their
    clients leave or retry, weights are published, and the engine is killed."""
    agent = OutsideAgent(
        begun=Begun(sampling=SAMPLING, train_superseded=draw(st.booleans())),
    )
    talks: list[list[str]] = [["q"], ["q"]]
    open_calls: dict[int, list[str]] = {}
    for step in range(draw(st.integers(1, 20))):
        match draw(st.sampled_from(STEPS)):
            case "edit":
                talk = list(draw(st.sampled_from(talks)))
                talk[draw(st.integers(0, len(talk) - 1))] = f"edit{step}"
                talks.append(talk)
            case "ask":
                talk = list(draw(st.sampled_from(talks)))
                if draw(st.booleans()):
                    talk.append(f"u{step}")
                call = agent.ask(
                    talk,
                    n=draw(st.sampled_from([1, 1, 3])),
                    cut=draw(st.none() | st.integers(0, 12)),
                    aside=draw(st.integers(0, 9)) == 0,
                    root=draw(st.sampled_from([ROOT, ROOT, OTHER_ROOT])),
                )
                open_calls[call] = talk
            case "publish":
                agent.publish()
            case "kill":
                agent.die(draw(st.integers(0, 4)))
                left = agent.forest.open_calls
                open_calls = {call: talk for call, talk in open_calls.items() if call in left}
            case "retry":  # marked: it makes no call where the engine has one
                newest = agent.forest.nodes[-1] if agent.forest.nodes else None
                if newest is not None:
                    assert agent.forest.known(newest.asked.request) == newest.asked.call
            case "stream" if open_calls:
                call = draw(st.sampled_from(sorted(open_calls)))
                if agent.forest.node(call).acted is None:
                    agent.stream(call)
            case "drop" if open_calls:
                call = draw(st.sampled_from(sorted(open_calls)))
                del open_calls[call]
                agent.drop(call)
            case "end" if open_calls:
                call = draw(st.sampled_from(sorted(open_calls)))
                for node in agent.forest.call(call):
                    if node.acted is None:  # a kill may come between the end and the reply
                        agent.act(node.number)
                if draw(st.integers(0, 5)):
                    talks += agent.reply(call, open_calls.pop(call))
    return agent


def prompts_are_prefixes(agent: OutsideAgent, trajectory: Trajectory) -> None:
    sequences = [one.token_ids for one in trajectory.sequences]
    for node in agent.forest.turns:
        whole = agent.sent[node.number] + agent.written[node.number]
        assert any(one[: len(whole)] == whole for one in sequences)


def completions_train_once(agent: OutsideAgent, trajectory: Trajectory) -> None:
    untrained = set() if agent.begun.train_superseded else agent.forest.superseded()
    untrained |= {one.number for one in agent.forest.turns if one.asked.aside}
    wanted = Counter[int]()
    for node in agent.forest.turns:
        if node.number not in untrained:
            wanted.update(agent.written[node.number])
    trained = Counter[int]()
    for sequence in trajectory.sequences:
        mask = sequence.loss_mask
        trained.update(token for token, on in zip(sequence.token_ids, mask, strict=True) if on)
    assert trained == wanted
    assert set(wanted.values()) <= {1}
    written = sum(len(agent.written[node.number]) for node in agent.forest.turns)
    assert trajectory.response_tokens == written


def any_fold_goes_on(agent: OutsideAgent, cut: int) -> None:
    assert fold(agent.events[cut:], fold(agent.events[:cut])) == agent.state
    assert decode(encode(agent.events)) == agent.events


def weights_share_one_trajectory(trajectory: Trajectory) -> None:
    """The weights of a trajectory's tokens sum to 1/live, however many sequences they are in."""
    mine = [sum(one.loss_mask) for one in trajectory.sequences]
    counts, names = [*mine, 5, 0], ["mine"] * len(mine) + ["other", "silent"]
    weights = token_weights(counts, "seq-mean-token-mean", trajectories=names)
    total = sum(count * weight for count, weight in zip(counts, weights, strict=True))
    assert total == pytest.approx(1.0)
    of_mine = sum(count * weight for count, weight in zip(mine, weights, strict=False))
    assert of_mine == pytest.approx(0.5 if any(mine) else 0.0)


@settings(max_examples=100)
@given(histories())
def test_what_the_sampler_read_is_the_prefix_of_a_record(agent: OutsideAgent) -> None:
    prompts_are_prefixes(agent, recorded(agent))


@settings(max_examples=100)
@given(histories())
def test_each_accepted_completion_trains_once_at_most(agent: OutsideAgent) -> None:
    trajectory = recorded(agent)
    completions_train_once(agent, trajectory)
    weights_share_one_trajectory(trajectory)


@settings(max_examples=100)
@given(st.data(), histories())
def test_a_fold_of_any_prefix_continued_equals_the_whole(data: Any, agent: OutsideAgent) -> None:
    any_fold_goes_on(agent, data.draw(st.integers(0, len(agent.events))))


@pytest.mark.slow
@settings(max_examples=10_000)
@given(st.integers(0, 40), histories())
def test_ten_thousand_histories(cut: int, agent: OutsideAgent) -> None:
    any_fold_goes_on(agent, cut)
    trajectory = recorded(agent)
    prompts_are_prefixes(agent, trajectory)
    completions_train_once(agent, trajectory)
    weights_share_one_trajectory(trajectory)


@settings(max_examples=50)
@given(histories())
def test_a_record_survives_the_wire_and_names_its_forks(agent: OutsideAgent) -> None:
    trajectory = recorded(agent)
    message = trajectory_to_proto(trajectory)
    assert trajectory_from_proto(message) == trajectory
    assert sum(one.ByteSize() for one in message.sequences) <= agent.forest.record_bytes
    named = {one.id: one for one in trajectory.sequences}
    for sequence in trajectory.sequences:
        if sequence.parent is not None:
            at = sequence.fork_offset or 0
            assert sequence.token_ids[:at] == named[sequence.parent].token_ids[:at]
            assert not any(sequence.loss_mask[:at])
    written = sum(len(agent.written[node.number]) for node in agent.forest.turns)
    seen = [s for s in agent.state.history if s.author is Author.MODEL]
    assert sum(len(segment.token_ids) for segment in seen) == written
    turns = [s.turn for q in trajectory.sequences for s in q.segments if s.trainable]
    assert set(turns) <= set(range(len(agent.forest.accepted)))


def test_a_conversation_is_one_sequence() -> None:
    agent = OutsideAgent()
    talk = agent.talk(["q"])
    talk = agent.talk([*talk, "u1"])
    agent.talk([*talk, "u2"])
    (sequence,) = recorded(agent).sequences
    authors = [segment.author for segment in sequence.segments]
    assert authors == [Author.TEMPLATE, Author.PROMPT, Author.MODEL] * 3
    assert [s.turn for s in sequence.segments if s.author is Author.MODEL] == [0, 1, 2]
    assert [s.turn for s in sequence.segments if s.author is Author.PROMPT] == [0, 0, 1]


def test_an_edited_answer_forks_at_the_deepest_match() -> None:
    agent = OutsideAgent()
    first = agent.talk(["q"])
    second = agent.talk([*first, "u"])
    edited = [*second[:-1], "edited", "u2"]
    match = agent.forest.match(ROOT, digests_of(edited), {})
    assert match is not None
    assert (match.node.number, match.messages) == (0, 2)
    agent.talk(edited)
    one, other = recorded(agent).sequences
    assert (other.parent, other.fork_offset) == (one.id, 4)
    assert other.loss_mask == (False,) * 6 + (True,) * 2


def test_the_later_of_equal_completions_is_gone_on_from() -> None:
    agent = OutsideAgent()
    calls = [agent.ask(["q"]), agent.ask(["q"])]
    for call in calls:
        agent.act(call)
        digest = digests_of(["q", "same"])[-1]
        agent.add(Replied(call=call, digests=(digest,), reasoning=(b"",)))
    match = agent.forest.match(ROOT, digests_of(["q", "same", "u"]), {})
    assert match is not None
    assert match.node.number == 1


@pytest.mark.parametrize(("sent", "found"), [({}, 0), ({1: b"t"}, 0), ({1: b"x"}, None)])
def test_reasoning_counts_only_where_it_is_sent_and_different(
    sent: dict[int, bytes], found: int | None
) -> None:
    agent = OutsideAgent()
    call = agent.ask(["q"])
    agent.act(call)
    talk = ["q", "a"]
    agent.add(Replied(call=call, digests=(digests_of(talk)[-1],), reasoning=(b"t",)))
    match = agent.forest.match(ROOT, digests_of([*talk, "u"]), sent)
    assert (match.node.number if match else None) == found


def test_the_reasoning_of_a_parent_that_was_cut_off_does_not_count() -> None:
    agent = OutsideAgent()
    agent.talk(["q"])
    cut = agent.forest.node(0)
    agent.ask(["q", "edited", "u"], parent=0, cut=cut.start)
    agent.act(1)
    talk = agent.reply(1, ["q", "edited", "u"])[0]
    match = agent.forest.match(ROOT, digests_of([*talk, "v"]), {1: b"another thought"})
    assert match is not None
    assert (match.node.number, match.messages) == (1, 4)


@settings(max_examples=150, deadline=None)
@given(st.data(), histories())
def test_the_longest_prefix_is_that_of_all_completions(data: Any, agent: OutsideAgent) -> None:
    turns = list(agent.forest.turns)
    assume(turns)
    whole = agent.forest.ids(data.draw(st.sampled_from(turns)).number)
    token_ids = whole[: data.draw(st.integers(0, len(whole)))] + ids([0, 1])
    for root in (ROOT, OTHER_ROOT):
        shared = [
            common_prefix(agent.forest.ids(one.number), token_ids)
            for one in turns
            if one.asked.root == root
        ]
        found = agent.forest.longest_prefix(root, token_ids)
        assert max(shared, default=0) == (found[1] if found else 0)
        assert found is None or found[0].asked.shared < found[1] <= found[0].end


@pytest.mark.parametrize("train", [False, True])
def test_a_sample_that_another_one_replaced_is_masked(train: bool) -> None:
    agent = OutsideAgent(begun=Begun(sampling=SAMPLING, train_superseded=train))
    agent.talk(["q"])
    agent.talk(["q"])
    first, second = recorded(agent).sequences
    assert (any(first.loss_mask), any(second.loss_mask)) == (train, True)


def test_all_choices_of_a_call_train_until_one_is_gone_on_from() -> None:
    agent = OutsideAgent()
    call = agent.ask(["q"], n=3)
    for number in range(3):
        agent.act(number)
    talks = agent.reply(call, ["q"])
    assert agent.forest.superseded() == set()
    agent.talk([*talks[1], "u"])
    assert agent.forest.superseded() == {0, 2}
    shapes = [(one.parent, one.fork_offset) for one in recorded(agent).sequences]
    assert shapes == [(None, None), ("g1-0.0", 2), ("g1-0.0", 2)]


def test_all_ids_fork_at_the_longest_common_prefix() -> None:
    agent = OutsideAgent()
    agent.talk(["q"], tail=3)  # ids 1 to 5
    agent.talk(["q", "a0", "u"], tail=2)  # ids 6 to 9
    whole = agent.forest.ids(1)
    assert whole == ids(range(1, 10))
    for count, number in [(2, 0), (5, 0), (6, 1), (9, 1)]:
        found = agent.forest.longest_prefix(ROOT, whole[:count] + ids([99]))
        assert found is not None
        assert (found[0].number, found[1]) == (number, count)
    assert agent.forest.longest_prefix(ROOT, ids([99])) is None
    assert agent.forest.longest_prefix(OTHER_ROOT, whole) is None


@given(st.lists(st.integers(0, 2), max_size=9), st.lists(st.integers(0, 2), max_size=9))
def test_a_common_prefix(one: list[int], other: list[int]) -> None:
    count = common_prefix(ids(one), ids(other))
    assert one[:count] == other[:count]
    assert one[count : count + 1] != other[count : count + 1] or count == len(one) == len(other)


def test_reports_keep_the_last_of_each_part() -> None:
    agent = OutsideAgent()
    parts: Sequence[RewardPart] = [
        RewardPart(name="a", value=1.0), RewardPart(name="a", value=2.0, turn=0)
    ]  # fmt: skip
    agent.add(Rewarded(parts=tuple(parts)))
    agent.add(Rewarded(reward=0.5, parts=(RewardPart(name="a", value=3.0),)))
    assert recorded(agent).metadata["reported"] == {
        "reward": 0.5,
        "parts": [
            {"name": "a", "value": 3.0, "turn": None},
            {"name": "a", "value": 2.0, "turn": 0},
        ],
    }


def test_events_out_of_order_are_refused() -> None:
    agent = OutsideAgent()
    call = agent.ask(["q"])
    asked = agent.events[-1]
    assert isinstance(asked, Asked)
    refused = [
        asked,  # a number twice
        Replied(call=call, digests=(b"d",), reasoning=(b"",)),  # before its end
        Begun(sampling=SAMPLING),
        Appended(token_ids=ids([1]), author=Author.TOOL),
        Called(call_id="c", turn=0, index=0, action=""),  # no turn yet
    ]
    for event in refused:
        with pytest.raises(LogError):
            fold([event], agent.state)
    agent.drop(call)
    with pytest.raises(LogError):
        agent.drop(call)
    for event in agent.events[1:]:
        with pytest.raises(LogError):
            fold([event])
