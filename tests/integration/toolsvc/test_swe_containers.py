"""The swe tool in containers, behind stand-ins for docker's command line and Kubernetes' API.

What is real: the tool, its runners, the client of the API, processes in namespaces of their own.
What is not: docker, podman, a cluster, and whether they hold what they are asked for."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.support.containers.cluster import DOCKER, Cluster, install_docker, kubeconfig
from tests.support.manifests import manifest
from tests.support.swe import Source, bash, call, edit, fix, serving, submit
from tests.support.trajectory import Trajectory, said
from toolsvc.errors import Reason, Refused, StartError
from toolsvc.host.host import Host
from toolsvc.types import Result
from toolwright.types import ToolErrorKind

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

Until = Callable[[Callable[[], bool]], Awaitable[None]]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    return Source(tmp_path_factory.mktemp("swe"))


@pytest.fixture(scope="module")
def machine(source: Source) -> Any:
    """A machine with the stand-ins; its containers have their folder at `testbed`."""
    folder = source.repositories.parent
    (folder / "bin").mkdir()
    (folder / "testbed").mkdir()
    for program in ("docker", "podman"):
        install_docker(folder / "bin" / program)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STANDIN", str(folder / "standin"))
        patch.setenv("PATH", str(folder / "bin"), prepend=":")
        yield folder


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(machine: Path) -> AsyncIterator[Cluster]:
    running = Cluster(manifest("Role", "boxes"))
    async with running.serving() as address:
        (machine / "kubeconfig").write_text(kubeconfig(address), encoding="utf-8")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("KUBECONFIG", str(machine / "kubeconfig"))
            yield running


def options(machine: Path, runner: str, **more: Any) -> dict[str, Any]:
    return {
        "runner": runner,
        "folder": str(machine / "testbed"),
        "images": ["bill", "empty", "missing", "crash", "stuck"],
        "image": "empty",
        **more,
    }


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["docker", "kubernetes"])
async def host(
    request: pytest.FixtureRequest, source: Source, machine: Path, cluster: Cluster
) -> AsyncIterator[Host]:
    async with serving(source, **options(machine, request.param)) as running:
        yield running
    assert list((machine / "standin" / "boxes").iterdir()) == []
    assert cluster.pods == {}


@pytest.fixture(params=["checkout", "image"])
def task(request: pytest.FixtureRequest, source: Source) -> dict[str, str]:
    """The repository comes from this side, or is in the image."""
    if request.param == "image":
        return {"image": "bill", "verification": "bill-1"}
    return source.task()


async def test_a_fix_is_rewarded(host: Host, task: dict[str, str]) -> None:
    session = Trajectory(host, "swe", task)
    found = said(await session.act(call("search", search_term="// people")))
    assert found == "./bill.py:6:    each = total // people"
    await fix(session)
    assert "OK" in await bash(session, "python3 -m unittest 2>&1 | tail -n 1")
    result = await submit(session)
    assert (result.reward, result.metrics["tests_passed"]) == (1.0, 3)


@pytest.mark.parametrize(
    ("attack", "metric"),
    [
        ("echo 'import unittest' > tests/test_bill.py", "tampered_files"),
        ("echo 'while True: pass' >> bill.py", "verification_timeout"),
    ],
)
async def test_all_else_is_not(host: Host, source: Source, attack: str, metric: str) -> None:
    session = Trajectory(host, "swe", source.task(verification="impatient"))
    await bash(session, attack)
    result = await submit(session)
    assert result.reward == 0.0
    assert result.metrics[metric] > 0


async def test_commands_are_bounded_and_cancelled(host: Host, source: Source) -> None:
    session = Trajectory(host, "swe", source.task())
    told = await bash(session, "echo $'a\\nb'; echo c >&2; read x; exit 3")
    assert told == "a\nb\nc\n[exit code 3]"
    result = await session.act(call("execute_bash", cmd="echo a; sleep 60"), run_limit=0.5)
    assert (said(result), result.error and result.error.kind) == (
        "a\n[stopped after 0.5 s]",
        ToolErrorKind.TIMEOUT,
    )
    stubborn = "trap '' INT TERM; echo a; sleep 60; sleep 60"
    result = await session.act(call("execute_bash", cmd=stubborn), run_limit=0.5)
    assert result.error is not None
    asked = asyncio.create_task(bash(session, "echo begun; sleep 60"))
    await asyncio.sleep(0)
    while not session.cancel():  # noqa: ASYNC110 - until the call has begun
        await asyncio.sleep(0)
    assert "cancelled" in await asked
    long = await session.act(call("execute_bash", command="yes | head -c 100000"))
    assert (len(said(long).partition("\n[")[0]), long.truncated) == (65535, True)
    assert await bash(session, "pgrep -c sleep") == "1"  # the container's own
    await session.close()


async def test_a_container_that_ended_is_a_lost_session(host: Host, source: Source) -> None:
    session = Trajectory(host, "swe", source.task())
    await bash(session, "true")
    await session.open()
    for box in (source.repositories.parent / "standin" / "boxes").iterdir():
        process = await asyncio.create_subprocess_exec(*DOCKER, "rm", "--force", box.name)
        assert await process.wait() == 0
    with pytest.raises(Refused, match="the box was lost") as caught:
        await bash(session, "true")
    assert caught.value.reason is Reason.SESSION_LOST
    with pytest.raises(Refused):
        await bash(session, "true")
    await session.close()


def container(machine: Path) -> Path:
    (box,) = (machine / "standin" / "boxes").iterdir()
    return box


async def end_first_process(box: Path, until: Until) -> None:
    """Kills the first process of a container; returns once it has no process to enter."""
    pid = int((box / "pid").read_text(encoding="utf-8"))
    children = Path(f"/proc/{pid}/task/{pid}/children")
    os.kill(pid, signal.SIGKILL)

    def ended() -> bool:
        try:
            return not children.read_text(encoding="utf-8")
        except (FileNotFoundError, ProcessLookupError):
            return True

    await until(ended)


async def is_told_and_told_again(session: Trajectory, result: Result) -> None:
    for told in (result, await session.act(call("execute_bash", command="true"))):
        assert (told.error.kind, told.error.session_lost) == (ToolErrorKind.CRASHED, True)
    assert session.host.renew("tests", 600, [session.session_id]).lost == ()


async def test_a_container_that_its_policy_ended_is_told(
    host: Host, source: Source, machine: Path, until: Until
) -> None:
    """Its first process is killed while the container is there, and those who run it answer."""
    during, after = (Trajectory(host, "swe", source.task()) for _ in range(2))
    await during.open()
    box = container(machine)
    running = asyncio.create_task(during.act(call("execute_bash", cmd="touch begun; sleep 60")))
    await until((box / "files" / "begun").exists)
    await end_first_process(box, until)
    await is_told_and_told_again(during, await running)
    assert (await submit(during)).reward == 0.0
    await during.close()
    await bash(after, "true")
    await end_first_process(container(machine), until)
    await is_told_and_told_again(after, await edit(after, "view", "."))
    await after.close()


async def test_a_container_whose_program_does_not_answer_is_a_lost_session(
    host: Host, source: Source, machine: Path
) -> None:
    session = Trajectory(host, "swe", source.task())
    await bash(session, "true")
    down = machine / "standin" / "down"
    down.touch()
    try:
        with pytest.raises(Refused, match="the box was lost") as caught:
            await bash(session, "true")
    finally:
        down.unlink()
    assert caught.value.reason is Reason.SESSION_LOST
    await session.close()


async def test_an_image_that_cannot_be_started(host: Host) -> None:
    for image in ("missing", "crash"):
        with pytest.raises(Refused, match="no box could be started") as caught:
            await Trajectory(host, "swe", {"image": image}).open()
        assert caught.value.reason is Reason.BACKEND_DOWN


async def test_limits_reach_the_container(source: Source, machine: Path, cluster: Cluster) -> None:
    given = {"cpus": 1.5, "requested_cpus": 4, "requested_memory_mib": 64, "life_seconds": 99}
    async with serving(source, **options(machine, "podman", **given)) as host:
        await Trajectory(host, "swe", source.task()).open()
    lines = (machine / "standin" / "log").read_text(encoding="utf-8").splitlines()
    run = next(words for words in map(json.loads, reversed(lines)) if words[0] == "run")
    for words in (
        ["--network", "none"], ["--cap-drop", "ALL"], ["--cpus", "1.5"], ["--pids-limit", "64"],
        ["--memory", str(192 << 20)], ["--memory-swap", str(192 << 20)],
        ["--security-opt", "no-new-privileges"],
    ):  # fmt: skip
        assert words[1] == run[run.index(words[0]) + 1]
    assert run[-1] == "while ((SECONDS < 99)); do sleep 60; done"
    async with serving(source, **options(machine, "kubernetes", **given)) as host:
        await Trajectory(host, "swe", source.task()).open()
    spec = cluster.created[-1]["spec"]
    (container,) = spec["containers"]
    assert container["resources"] == {
        "requests": {"cpu": "1.5", "memory": str(64 << 20)},
        "limits": {"cpu": "1.5", "memory": str(192 << 20)},
    }
    assert container["securityContext"]["capabilities"]["drop"] == ["ALL"]
    assert not container["securityContext"]["allowPrivilegeEscalation"]
    assert (spec["activeDeadlineSeconds"], spec["restartPolicy"]) == (99, "Never")
    assert not spec["automountServiceAccountToken"]
    assert cluster.pods == {}


async def test_the_role_that_is_shipped_has_the_rights_that_are_used_and_no_other(
    source: Source, machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    role = manifest("Role", "boxes")
    cluster = Cluster(role)
    async with cluster.serving() as address:
        (tmp_path / "kubeconfig").write_text(kubeconfig(address), encoding="utf-8")
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        async with serving(source, **options(machine, "kubernetes")) as host:
            session = Trajectory(host, "swe", source.task())
            assert await bash(session, "echo here") == "here"
    assert cluster.used == {
        (verb, resource)
        for rule in role["rules"]
        for verb in rule["verbs"]
        for resource in rule["resources"]
    }


async def test_starts_are_capped_and_given_up(
    source: Source, machine: Path, cluster: Cluster
) -> None:
    """Of five pods that never start two are asked for at a time, and none is left."""
    before = len(cluster.created)
    slow = {"starting": 2, "start_seconds": 0.5}
    async with serving(source, **options(machine, "kubernetes", **slow)) as host:
        opening = [
            asyncio.create_task(Trajectory(host, "swe", {"image": "stuck"}).open())
            for _ in range(5)
        ]
        most = 0
        while not all(task.done() for task in opening):
            await asyncio.sleep(0.01)
            most = max(most, len(cluster.pods))
        results = await asyncio.gather(*opening, return_exceptions=True)
    assert all("not there after 0.5 s" in str(result) for result in results), results
    assert most == 2
    assert len(cluster.created) - before == 5
    assert cluster.pods == {}


@pytest.mark.parametrize(
    ("runner", "says"),
    [
        ("docker", r"docker cannot be used \(Cannot connect to the Docker daemon"),
        ("podman", "podman is not on PATH"),
        ("kubernetes", r"no pods can be had in namespace 'default' \(401"),
    ],
)
async def test_what_is_not_there_is_said_at_the_start(
    source: Source, machine: Path, cluster: Cluster, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, runner: str, says: str,
) -> None:  # fmt: skip
    monkeypatch.setenv("STANDIN", str(tmp_path))
    (tmp_path / "down").touch()
    if runner == "podman":
        monkeypatch.setenv("PATH", str(tmp_path))
    if runner == "kubernetes":
        text = (machine / "kubeconfig").read_text(encoding="utf-8").replace("of-the-tests", "wrong")
        (tmp_path / "kubeconfig").write_text(text, encoding="utf-8")
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    with pytest.raises(StartError, match=says):
        async with serving(source, **options(machine, runner)):
            pass
