"""`memory serve` as a process: what it answers, refuses, and still has after a kill."""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from prometheus_client.parser import text_string_to_metric_families

from tests.support.memory_service import group, made, memory_process
from tests.support.net import free_port
from tests.support.recipes import recipe_tables, write_recipe
from tests.support.redis import redis_server
from toolwright.memory.v1 import memory_pb2 as pb
from toolwright.memory.v1 import memory_pb2_grpc

pytestmark = pytest.mark.quick

Stub = memory_pb2_grpc.MemoryServiceStub


@pytest.fixture(scope="module")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stub]:
    folder = tmp_path_factory.mktemp("memory")
    with memory_process(folder / "m.sqlite") as served, grpc.insecure_channel(served.address) as to:
        assert (
            health_pb2_grpc.HealthStub(to).Check(health_pb2.HealthCheckRequest(), timeout=5).status
            == health_pb2.HealthCheckResponse.SERVING
        )
        yield Stub(to)


def test_a_group_is_merged_and_found(stub: Stub) -> None:
    asked = group(
        "run/g1",
        [made("square", "square of a number")],
        [made("squared", "square of a number")],
        [made("cube", "third power of some quantity")],
    )
    asked.rollouts[1].uses.add(name="squared", calls=2, successes=1, seconds=0.5)
    merged = stub.MergeGroup(asked, timeout=10)
    names = {one.trajectory_id: dict(one.names) for one in merged.rollouts}
    # Two names of one tool are one anchor; what nobody registered has one too.
    assert names["t0"]["square"] == names["t1"]["squared"] != names["t2"]["cube"]
    assert dict(merged.registered) == {"square": "square"}
    again = stub.MergeGroup(asked, timeout=10)
    assert again == merged

    found = stub.Retrieve(pb.RetrieveRequest(subtasks=["the square of a number"]), timeout=10)
    assert [one.tool.name for one in found.tools] == ["square"]
    assert found.version == merged.version
    assert found.tools[0].tool.arguments_schema["type"] == "object"
    before = stub.Retrieve(pb.RetrieveRequest(question="square", version=0), timeout=10)
    assert not before.tools

    status = stub.GetStatus(pb.GetStatusRequest(), timeout=10)
    assert (status.nodes, status.embedder, status.checks) == (1, "hashing", False)


def test_a_question_before_weights(tmp_path: Path) -> None:
    """As it was before their first group, also when older groups come late; what another training
    left is there from the beginning."""
    names = ("triangle", "hexagon", "circle", "ellipse", "rhombus")
    with (
        memory_process(tmp_path / "m.sqlite") as served,
        grpc.insecure_channel(served.address) as to,
    ):
        stub = Stub(to)

        def at(weights: str) -> int:
            asked = pb.RetrieveRequest(question="area of a shape", before_weights=weights)
            return int(stub.Retrieve(asked, timeout=10).version)

        assert at("new.0") == at("new.9") == 0
        made_by = (("old", 60), ("new", 0), ("new", 2), ("new", 1), ("new", 5))
        for (lineage, step), name in zip(made_by, names, strict=True):
            asked = group(f"{lineage}/g{step}", [made(name, f"area of a {name}")])
            asked.step = step
            stub.MergeGroup(asked, timeout=10)
        asked_of = [f"new.{step}" for step in (0, 1, 2, 3, 5, 6, 1 << 62)]
        assert [at(weights) for weights in asked_of] == [1, 2, 2, 4, 4, 5, 5]
        assert at("other.0") == 5
        for one, other in (("version", "before_weights"), ("before_weights", "iteration")):
            asked = pb.RetrieveRequest(version=1, before_weights="new.1", iteration="new.1")
            for left in {"version", "before_weights", "iteration"} - {one, other}:
                asked.ClearField(left)
            with pytest.raises(grpc.RpcError, match=f"{one} and {other}"):
                stub.Retrieve(asked, timeout=10)
        for weights in ("", "new", ".3", "new.", "new.-1", "new.\u0663", "new.1e3", "x" * 10_000):
            with pytest.raises(grpc.RpcError, match=r"write LINEAGE\.STEP"):
                at(weights)


@pytest.mark.parametrize("backwards", [False, True])
def test_an_iteration_sees_one_version_also_after_a_kill(tmp_path: Path, backwards: bool) -> None:
    """And its groups, whatever their order, are merged as one when the next one begins."""
    groups = [
        group(f"run/g{number}", [made(f"shape{number}", f"area of a {word} shape")])
        for number, word in enumerate(("round", "round", "flat"))
    ]
    for one in groups:
        one.iteration = "run.0"
    store = tmp_path / "m.sqlite"

    def seen(stub: Stub, iteration: str) -> tuple[int, list[tuple[str, list[str]]]]:
        asked = pb.RetrieveRequest(question="area of a shape", iteration=iteration)
        found = stub.Retrieve(asked, timeout=10)
        return int(found.version), [(t.tool.name, list(t.tool.aliases)) for t in found.tools]

    with memory_process(store) as served, grpc.insecure_channel(served.address) as to:
        stub = Stub(to)
        begun = seen(stub, "run.0")
        for one in groups[:: -1 if backwards else 1]:
            merged = stub.MergeGroup(one, timeout=10)
            assert not merged.registered and seen(stub, "run.0") == begun
        assert stub.GetStatus(pb.GetStatusRequest(), timeout=10).waiting == 3
        served.kill()
    with memory_process(store) as served, grpc.insecure_channel(served.address) as to:
        stub = Stub(to)
        assert seen(stub, "run.0") == begun == (1, [])
        after = seen(stub, "run.1")
        assert after == (5, [("shape0", ["shape1"]), ("shape2", [])])
        served.kill()
    with memory_process(store) as served, grpc.insecure_channel(served.address) as to:
        stub = Stub(to)
        assert seen(stub, "run.1") == after and seen(stub, "run.0") == begun
        assert stub.MergeGroup(groups[0], timeout=10).version <= 4
        status = stub.GetStatus(pb.GetStatusRequest(), timeout=10)
        assert (status.waiting, status.version) == (0, 5)


def test_what_is_embedded_stays_what_the_memory_was_begun_with(tmp_path: Path) -> None:
    """Two tools of one description are one, unless their names count too."""
    store = tmp_path / "m.sqlite"
    tables = recipe_tables(
        policy=tmp_path, sampler="http://127.0.0.1:1", tools={}, engine="127.0.0.1:0"
    )
    recipe = write_recipe(tmp_path, {**tables, "memory": {"text_of": "name and description"}})
    with (
        memory_process(store, str(recipe)) as served,
        grpc.insecure_channel(served.address) as to,
    ):
        stub = Stub(to)
        for name in ("circle_area", "square_area"):
            stub.MergeGroup(group(name, [made(name, "area of it")]), timeout=10)
        found = stub.Retrieve(pb.RetrieveRequest(question="square"), timeout=10)
        assert [one.tool.name for one in found.tools] == ["square_area"]
        status = stub.GetStatus(pb.GetStatusRequest(), timeout=10)
        assert (status.nodes, status.embedder) == (2, "hashing, text_of = name and description")
    said = subprocess.run(
        [sys.executable, "-m", "memory.cli", "serve", "--store", str(store)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert said.returncode == 1
    assert "begun with the embedder 'hashing, text_of = name and description'" in said.stderr
    listed = subprocess.run(
        [sys.executable, "-m", "memory.cli", "list", str(store), "--match", "circle"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "circle_area" in listed.stdout and "square_area" not in listed.stdout


@pytest.mark.parametrize(
    "request_",
    [
        pb.MergeGroupRequest(group=""),
        pb.MergeGroupRequest(group="a", step=1 << 63),
        pb.MergeGroupRequest(group="a", mode=99),  # type: ignore[arg-type]
        pb.MergeGroupRequest(
            group="a",
            rollouts=[
                pb.RolloutTools(trajectory_id="t", edges=[pb.ToolEdge(to="b", count=float("inf"))])
            ],
        ),
        pb.RetrieveRequest(question="a", text_weight=float("nan")),
        pb.RetrieveRequest(question="a", k_total=4_000_000_000),
        pb.RetrieveRequest(question="a" * 2_000_000),
        pb.RetrieveRequest(question="a", scoring=77),  # type: ignore[arg-type]
        pb.SnapshotRequest(version=1 << 62),
    ],
    ids=lambda one: str(one)[:40].replace("\n", " "),
)
def test_nonsense_is_invalid(stub: Stub, request_: object) -> None:
    method = {
        pb.MergeGroupRequest: stub.MergeGroup,
        pb.RetrieveRequest: stub.Retrieve,
        pb.SnapshotRequest: stub.Snapshot,
    }[type(request_)]  # type: ignore[index]
    with pytest.raises(grpc.RpcError) as caught:
        method(request_, timeout=10)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT, caught.value.details()


def test_what_is_no_tool_is_refused_and_the_rest_stays(stub: Stub) -> None:
    nested = "def nested(n): return " + "(" * 5000 + ")" * 5000
    bad = [made("python", "a reserved name"), made("nested", "hostile nesting", code=nested)]
    asked = group("run/bad", [*bad, made("fine", "a fine tool among bad ones")])
    asked.reserved.append("python")
    merged = stub.MergeGroup(asked, timeout=10)
    assert [one.name for one in merged.refused] == ["python", "nested"]
    assert all(one.reason for one in merged.refused)
    assert dict(merged.registered).keys() == {"fine"}
    with pytest.raises(grpc.RpcError) as caught:
        stub.MergeGroup(group("run/bad", [made("one_b", "other words here")]), timeout=10)
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION, "the group's name is taken"


def test_a_snapshot_comes_in_pages(stub: Stub) -> None:
    words = ["apples", "bridges", "candles", "deserts"]
    tools = [made(f"page_{word}", f"counts {word} {word} {word}") for word in words]
    stub.MergeGroup(group("run/pages", tools), timeout=10)
    whole = stub.Snapshot(pb.SnapshotRequest(), timeout=10)
    seen, request = [], pb.SnapshotRequest(limit=2, version=whole.version)
    while True:
        page = stub.Snapshot(request, timeout=10)
        seen += page.nodes
        if not page.more:
            break
        request.after_id = page.nodes[-1].id
    assert seen == list(whole.nodes)
    assert len(seen) >= 4


def test_single_tools_and_trajectories_come_in_too(stub: Stub) -> None:
    registered = stub.Register(
        pb.RegisterRequest(trajectory_id="alone", tool=made("lonely", "stands alone on a hill")),
        timeout=10,
    )
    assert registered.canonical == "lonely"
    asked = pb.MergeRequest(
        trajectory_id="pair",
        nodes=[made("first_of", "opens the door"), made("second_of", "paints a wall green")],
    )
    edge = asked.edges.add(to="second_of", count=1)
    setattr(edge, "from", "first_of")
    version = stub.Merge(asked, timeout=10).version
    held = stub.Snapshot(pb.SnapshotRequest(version=version), timeout=10)
    assert ("first_of", "second_of") in {(getattr(one, "from"), one.to) for one in held.edges}
    with pytest.raises(grpc.RpcError) as caught:
        stub.Register(pb.RegisterRequest(trajectory_id="x", tool=made("1", "bad")), timeout=10)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
def test_a_killed_memory_has_what_it_answered(kind: str, tmp_path: Path) -> None:
    asked = group("run/g1", [made("kept", "what was answered is kept")])
    with redis_server("noeviction") as redis:
        store = str(tmp_path / "m.sqlite") if kind == "sqlite" else f"{redis.url}#tools"
        with memory_process(store) as first:
            with grpc.insecure_channel(first.address) as to:
                before = Stub(to).MergeGroup(asked, timeout=10)
            first.kill()
        with memory_process(store) as second, grpc.insecure_channel(second.address) as to:
            assert "1 tools, version 1" in second.said
            assert Stub(to).MergeGroup(asked, timeout=10) == before
            found = Stub(to).Retrieve(pb.RetrieveRequest(question="kept"), timeout=10)
            assert [one.tool.name for one in found.tools] == ["kept"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--store", "/proc/none/m.sqlite"], "cannot be used as a memory"),
        ([], "say --store"),
        (["--store", "m.sqlite", "--embedder", "/nowhere"], "nowhere"),
        (["--store", "m.sqlite", "--listen", "0.0.0.0:0"], "bearer token"),
    ],
)
def test_what_keeps_it_from_starting_is_one_sentence(
    words: list[str], sentence: str, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "memory.cli", "serve", *words]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=30)
    assert ended.returncode == 1
    assert sentence in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_the_page_for_prometheus(tmp_path: Path) -> None:
    port = free_port()
    with (
        memory_process(tmp_path / "m.sqlite", "--metrics-port", str(port)) as served,
        grpc.insecure_channel(served.address) as channel,
    ):
        stub = Stub(channel)
        work = group("g", [made("square", "square of a number")], [made("cube", "third power")])
        work.registers = "t1"
        stub.MergeGroup(work, timeout=10)
        stub.Retrieve(pb.RetrieveRequest(question="a cube"), timeout=10)
        with pytest.raises(grpc.RpcError):
            stub.Retrieve(pb.RetrieveRequest(question="a cube", version=99), timeout=10)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
    shown = {
        (sample.name.removeprefix("toolwright_memory_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert shown["tools",] == shown["version",] == shown["tools_registered_total",] == 1
    assert shown["groups_merged_total",] == 1
    assert shown["request_seconds_count", "MergeGroup"] == 1
    assert shown["request_seconds_count", "Retrieve"] == 1
    assert shown["errors_total", "Retrieve", "invalid_request"] == 1
    assert shown["requests_waiting",] == 0
