"""A publish goes through its stages as its table says, and refuses everything else unchanged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.core.sampler.control import PublishResult
from engine.core.sampler.update_group import TensorSpec
from engine.serving.publish.policy_shape import PolicyShape
from engine.serving.publish.publish_state import Event, PublishState, Stage
from engine.serving.publish.versions import ServedWeights, check_next
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.rpc.errors import ServiceError
from toolwright.types import WeightVersion

pytestmark = pytest.mark.quick

SHAPE = PolicyShape(config={}, tensors={name: ("F32", (4,)) for name in ("a", "b", "lm_head")})
DONE = PublishResult(samplers=1, paused_s=0.5)
WRONG_VERSION = reasons.ERROR_REASON_WRONG_VERSION
WRONG_LINEAGE = reasons.ERROR_REASON_WRONG_LINEAGE


def specs(names: str) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(name=name, dtype="float32", shape=(4,)) for name in names.split())


def opened() -> PublishState:
    return PublishState().after(Event.OPEN, world_size=3)


def with_buckets(*buckets: str) -> PublishState:
    state = opened()
    for index, names in enumerate(buckets):
        state = state.accept(index, specs(names), SHAPE).after(Event.RECEIVE, received=index + 1)
    return state


def refused(ask: Callable[[], object], match: str, reason: int) -> None:
    with pytest.raises(ServiceError, match=match) as caught:
        ask()
    assert caught.value.reason == reason


def test_a_publish_over_a_group_takes_buckets_and_then_commits() -> None:
    state = opened()
    assert (state.stage, state.world_size) == (Stage.OPEN, 3)
    state = state.accept(0, specs("a b"), SHAPE)
    assert (state.stage, state.received, state.came) == (Stage.RECEIVING, 0, {"a", "b"})
    state = with_buckets("a b", "lm_head").commit(SHAPE)
    assert (state.stage, state.received) == (Stage.COMMITTING, 2)
    state = state.after(Event.SERVE, result=DONE)
    assert (state.stage, state.result) == (Stage.SERVED, DONE)


def test_a_publish_by_a_folder_commits_with_its_request() -> None:
    assert PublishState().commit().after(Event.SERVE, result=DONE).stage is Stage.SERVED
    assert PublishState().after(Event.SERVE, result=DONE).stage is Stage.SERVED


INVALID = reasons.ERROR_REASON_INVALID_REQUEST


@pytest.mark.parametrize(
    ("state", "index", "names", "match"),
    [
        (with_buckets("a"), 0, "b", "bucket 0 is out of order: 1 is next"),
        (with_buckets(), 0, "", "bucket 0 has no tensors"),
        (with_buckets(), 0, "x", "no tensor x"),
        (with_buckets("a"), 1, "b a", "tensor a came before"),
        (opened().accept(0, specs("a"), SHAPE), 1, "b", "bucket 0 is still under way"),
        (with_buckets("a b lm_head").commit(SHAPE), 1, "a", "bucket 1 comes after the commit"),
        (PublishState(), 0, "a", "a publish that is waiting does not bucket"),
    ],
)
def test_a_bucket_that_is_not_next_is_refused(
    state: PublishState, index: int, names: str, match: str
) -> None:
    refused(lambda: state.accept(index, specs(names), SHAPE), match, INVALID)


def test_a_commit_needs_the_whole_policy() -> None:
    state = with_buckets("a")
    refused(lambda: state.commit(SHAPE), "2 tensors .* did not come, b is the first", INVALID)
    state = state.accept(1, specs("b"), SHAPE)
    refused(lambda: state.commit(SHAPE), "bucket 1 is still under way", INVALID)


def test_nothing_but_a_failure_ends_a_commit_and_nothing_changes_what_is_over() -> None:
    error = ValueError("why")
    for stage in (Stage.WAITING, Stage.OPEN, Stage.RECEIVING):
        ended = PublishState(stage=stage).after(Event.END, error=error)
        assert (ended.stage, ended.error) == (Stage.FAILED, error)
    committing = PublishState().commit()
    assert not committing.takes(Event.END)
    assert committing.after(Event.FAIL, error=error).stage is Stage.FAILED
    for stage in (Stage.SERVED, Stage.FAILED):
        assert not any(PublishState(stage=stage).takes(event) for event in Event)


def v(text: str) -> WeightVersion:
    return WeightVersion.parse(text)


def served(version: str, **more: object) -> ServedWeights:
    at = v(version)
    return ServedWeights(version=at, folder=(at, Path("1")), shape=SHAPE, **more)  # type: ignore[arg-type]


VERSIONS = [f"root.{step}" for step in range(5)]


def test_versions_over_a_group_await_their_folders() -> None:
    weights = served(VERSIONS[1])
    for step in (2, 3, 4):
        weights = weights.received(v(VERSIONS[step]))
    assert weights.version == v(VERSIONS[4])
    assert weights.folder == (v(VERSIONS[1]), Path("1"))
    weights = weights.named(v(VERSIONS[3]), Path("3"), SHAPE)  # stands for 2 as well
    assert weights.without_folder == (v(VERSIONS[4]),)
    assert (weights.version, weights.folder) == (v(VERSIONS[4]), (v(VERSIONS[3]), Path("3")))
    weights = weights.moved(v("fork.0"), Path("f"), SHAPE)
    assert (weights.version, weights.without_folder) == (v("fork.0"), ())


@pytest.mark.parametrize(
    ("given", "newest"),
    [(None, 1), ("root.0", 1), ("root.3", 3), ("other.3", 1)],
)
def test_the_newest_version_may_be_one_of_an_earlier_life(given: str | None, newest: int) -> None:
    weights = served(VERSIONS[1], given=None if given is None else v(given))
    assert weights.newest == v(VERSIONS[newest])


def next_of(version: str, parent: str | None = None, acknowledged: int = 0) -> WeightVersion | None:
    return check_next(
        served("b.3"),
        v(version),
        None if parent is None else v(parent),
        known=("a", "b"),
        acknowledged=acknowledged,
    )


def test_which_version_may_follow() -> None:
    assert next_of("b.4") is None
    assert next_of("b.9") is None
    assert next_of("new.2", parent="a.2") == v("a.2")
    assert next_of("new.0") == v("a.0")
    refused(lambda: next_of("b.3"), "not newer than b", WRONG_VERSION)
    refused(lambda: next_of("a.9"), "lineage a was left for b", WRONG_LINEAGE)
    refused(lambda: next_of("a.9", "b.3"), "lineage a was left for b", WRONG_LINEAGE)
    refused(lambda: next_of("new.4"), "names no parent", WRONG_LINEAGE)
    refused(lambda: next_of("new.4", "x.1"), "never published here", WRONG_LINEAGE)
    refused(lambda: next_of("new.0", acknowledged=7), "up to 7 are ack.* gone", WRONG_LINEAGE)
