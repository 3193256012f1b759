"""What jails are made of: each backend in its own right, none by two words only, and packages."""

import contextlib
import os
import shutil
import sys
import sysconfig
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import structlog.testing
from google.protobuf.duration_pb2 import Duration

from toolsvc.sandbox.config import MIB, Backend, Isolation, SandboxConfig
from toolsvc.sandbox.errors import SandboxUnavailable
from toolsvc.sandbox.sandbox import Sandbox
from toolsvc.sandbox.session import Ending
from toolwright.jail import firejail
from toolwright.rpc.channel import call as rpc
from toolwright.rpc.channel import open_channel
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.tool.v1 import tool_pb2_grpc

pytestmark = pytest.mark.quick

SMALL: dict[str, Any] = {"shards": 1, "ready": 1, "processes": 16}
UNSANDBOXED: dict[str, Any] = {**SMALL, "backend": Backend.NONE, "allow_unsandboxed": True}
CALM: dict[str, Any] = {"backend": Backend.BUBBLEWRAP}
"""firejail hides what lies beside a folder one by one, which in a busy /var/tmp may be gone."""
NEEDED = ("numpy", "numpy.libs", "sympy", "mpmath")


@pytest.fixture(scope="module")
def packages() -> Iterator[str]:
    """Some of this environment's packages where every user can read them, wherever it lies
    itself: a home folder may be closed, and /tmp is the sandbox's own."""
    installed = Path(sysconfig.get_paths()["purelib"])
    # firejail keeps /var/tmp to itself, so that is for those who may write nowhere else.
    place = next(path for path in ("/opt", "/srv", "/var/tmp") if os.access(path, os.W_OK))
    home = Path(tempfile.mkdtemp(prefix="toolsvc-test-", dir=place))
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    folder = home / "environment" / "lib" / version / "site-packages"
    try:
        home.chmod(0o755)
        (home / "beside").mkdir()
        for name in NEEDED:
            shutil.copytree(installed / name, folder / name, ignore=shutil.ignore_patterns("tests"))
        yield str(folder)
    finally:
        shutil.rmtree(home)


def programs_below() -> set[str]:
    names = set()
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # sessions come and go meanwhile
            names.add(process.name())
    return names


@pytest.mark.parametrize(
    ("backend", "missing", "package"),
    [(Backend.FIREJAIL, "firejail", "firejail"), (Backend.BUBBLEWRAP, "bwrap", "bubblewrap")],
)
async def test_one_backend_never_replaces_another(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, backend: Backend, missing: str, package: str
) -> None:
    for program in {"firejail", "bwrap"} - {missing}:
        found = shutil.which(program)
        assert found, f"{program} is missing: apt-get install firejail bubblewrap"
        (tmp_path / program).symlink_to(found)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxUnavailable, match=f"apt-get install {package}"):
        await Sandbox(SandboxConfig(**SMALL, backend=backend)).start()
    assert not programs_below() & {"firejail", "bwrap"}


@pytest.mark.parametrize("words", [{"backend": Backend.NONE}, {"allow_unsandboxed": True}], ids=str)
async def test_one_word_is_not_enough_to_go_without(words: dict[str, Any]) -> None:
    with pytest.raises(SandboxUnavailable, match="takes both"):
        await Sandbox(SandboxConfig(**SMALL, **words)).start()


async def test_to_go_without_is_warned_of_and_said() -> None:
    with structlog.testing.capture_logs() as logs:
        async with Sandbox(SandboxConfig(**UNSANDBOXED)) as sandbox:
            assert sandbox.level is Isolation.NONE
            session = await sandbox.take()
            outcome = await session.run("import os; os.getuid()", limit=10, keep=100)
            session.close()
    (warning,) = [entry for entry in logs if entry["log_level"] == "warning"]
    assert "WITHOUT A SANDBOX" in warning["event"]
    # Root's own rights are the one thing that is not given away.
    assert int(outcome.output) != 0


async def test_without_a_sandbox_limits_hold_and_sessions_end_whole() -> None:
    async with Sandbox(SandboxConfig(**UNSANDBOXED, memory_bytes=192 * MIB)) as sandbox:
        session = await sandbox.take()
        outcome = await session.run("bytearray(1 << 30)", limit=10, keep=1000)
        assert outcome.ending is Ending.OUT_OF_MEMORY
        assert not outcome.lost
        daemon = """
            import os, time
            for _ in range(3):
                if os.fork() == 0:
                    os.setpgid(0, 0)
                    if os.fork() == 0:
                        while True: time.sleep(0.01)
                    os._exit(0)
            os.getcwd()
        """
        outcome = await session.run(textwrap.dedent(daemon), limit=10, keep=1000)
        folder = Path(outcome.output.strip().strip("'"))
        assert folder.parent.name.startswith("toolsvc-sessions-")
        below = psutil.Process().children(recursive=True)
        session.close()
    assert not psutil.wait_procs(below, timeout=10)[1]
    assert not folder.parent.exists()


async def test_to_go_without_is_stamped_in_every_response(start: Callable[..., Any]) -> None:
    service = start("python", "--sandbox", "none", "--allow-unsandboxed", "--ready", "1")
    channel = open_channel(service.address)
    stub: Any = tool_pb2_grpc.ToolServiceStub(channel)
    request = pb.OpenSessionRequest(session_id="one", owner="tests", lease=Duration(seconds=60))
    opened = await rpc(stub.OpenSession, request, timeout=30)
    call = pb.CallToolRequest(session_id="one", call_id="a", action="<python>1 / 0</python>")
    failed = await rpc(stub.CallTool, call, timeout=40)
    call = pb.CallToolRequest(session_id="one", call_id="b", action="<python>6 * 7</python>")
    answered = await rpc(stub.CallTool, call, timeout=40)
    await channel.close()
    assert answered.result.observation[0].text == "42"
    stamps = {opened.isolation, failed.result.isolation, answered.result.isolation}
    assert stamps == {"none"}


async def test_packages_are_shared_by_all_sessions_and_can_be_imported_anew(packages: str) -> None:
    config = SandboxConfig(**SMALL, packages=(packages,), preload=("numpy",))
    async with Sandbox(config) as sandbox:
        draws = []
        for _ in range(2):
            session = await sandbox.take()
            code = "import sys\n'numpy' in sys.modules, 'sympy' in sys.modules"
            outcome = await session.run(code, limit=30, keep=1000)
            assert outcome.output.strip() == "(True, False)"
            code = (
                "import numpy, sympy, subprocess\nsympy.Integer(2) ** 3 + int(numpy.eye(2).sum())"
            )
            outcome = await session.run(code, limit=60, keep=1000)
            assert outcome.output.strip() == "10", outcome
            outcome = await session.run("numpy.random.rand()", limit=10, keep=1000)
            draws.append(outcome.output)
            code = f"open({packages!r} + '/numpy/x', 'w')"
            outcome = await session.run(code, limit=10, keep=1000)
            assert "PermissionError" in outcome.output or "Read-only" in outcome.output
            session.close()
        # Not one and the same stream of numbers for every trajectory.
        assert draws[0] != draws[1]


@pytest.mark.parametrize("backend", [Backend.FIREJAIL, Backend.BUBBLEWRAP])
async def test_beside_packages_nothing_comes_into_sight(backend: Backend, packages: str) -> None:
    config = SandboxConfig(
        **SMALL,
        backend=backend,
        packages=(packages,),
        isolation=Isolation.PER_SESSION,
        landlock_abi=0,
    )
    async with Sandbox(config) as sandbox:
        session = await sandbox.take()
        beside = Path(packages).parents[3]
        code = f"import os, sys\nassert {packages!r} in sys.path\nos.listdir({str(beside)!r})"
        outcome = await session.run(code, limit=10, keep=4000)
        session.close()
        repository = Path(__file__).parents[3]
        code = f"open({str(repository / 'pyproject.toml')!r})"
        session = await sandbox.take()
        hidden = await session.run(code, limit=10, keep=4000)
        session.close()
    seen = eval(outcome.output)
    hidden_there = {entry.name for entry in beside.iterdir()} - {Path(packages).parents[2].name}
    if backend is Backend.BUBBLEWRAP:
        assert not hidden_there & set(seen)
    assert hidden.ending is Ending.EXCEPTION


async def test_packages_that_a_session_could_change_are_found(
    monkeypatch: pytest.MonkeyPatch, packages: str
) -> None:
    command = firejail.command

    def without_walls(*arguments: Any) -> list[str]:
        return [word for word in command(*arguments) if not word.startswith("--read-only")]

    monkeypatch.setattr(firejail, "command", without_walls)
    config = SandboxConfig(**SMALL, packages=(packages,), isolation=Isolation.PER_SESSION)
    with pytest.raises(SandboxUnavailable, match=f"could change {packages}"):
        await Sandbox(config).start()


async def test_packages_among_more_than_firejail_can_hide_are_refused(packages: str) -> None:
    folder = Path(packages) / "crowded" / "wanted"
    folder.mkdir(parents=True)
    for number in range(130):
        (folder.parent / str(number)).mkdir()
    config = SandboxConfig(**SMALL, packages=(str(folder),))
    try:
        with pytest.raises(SandboxUnavailable, match="or take --sandbox bubblewrap"):
            await Sandbox(config).start()
    finally:
        shutil.rmtree(folder.parent)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"packages": ("/nowhere/at/all",)}, "/nowhere/at/all"),
        ({"packages": ("/tmp",)}, "of its own"),
        ({"preload": ("no_such_module",)}, "no_such_module cannot be imported"),
    ],
    ids=str,
)
async def test_packages_that_cannot_work_are_told(change: dict[str, Any], says: str) -> None:
    with pytest.raises(SandboxUnavailable, match=says) as failure:
        await Sandbox(SandboxConfig(**SMALL, **change)).start()
    assert "user namespaces" not in str(failure.value)


RESTLESS = (
    "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
)


@pytest.mark.parametrize(
    ("below", "preload", "says"),
    [
        ("lib/python3.7", (), r"are for Python 3\.7 .* --sandbox-python"),
        (".", ("restless",), "starts threads"),
    ],
    ids=["of another Python", "that start threads"],
)
async def test_packages_that_do_not_suit_sessions_are_refused(
    below: str, preload: tuple[str, ...], says: str
) -> None:
    home = Path("/var/tmp") / f"toolsvc-test-{os.getpid()}"
    folder = home / below
    folder.mkdir(parents=True)
    (folder / "restless.py").write_text(RESTLESS, encoding="utf-8")
    try:
        with pytest.raises(SandboxUnavailable, match=says):
            config = SandboxConfig(**SMALL, **CALM, packages=(str(folder),), preload=preload)
            await Sandbox(config).start()
    finally:
        shutil.rmtree(home)
