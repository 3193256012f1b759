"""Every attack of `attacks`, behind every wall that this kernel can force, against the machine and
against another session; after each, the other session and the host are as they were."""

import contextlib
import os
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import pytest_asyncio

from tests.integration.toolsvc.attacks import DENIALS, PRELUDE, TRIES
from tests.integration.toolsvc.bombs import BOMBS
from tests.integration.toolsvc.conftest import QUICK_WALLS, SMALL
from toolsvc.sandbox.config import SandboxConfig
from toolsvc.sandbox.plan import find_account
from toolsvc.sandbox.sandbox import Sandbox
from toolsvc.sandbox.session import Ending, Outcome, SandboxSession

pytestmark = [pytest.mark.quick, pytest.mark.asyncio(loop_scope="module")]

KEEP = 4096
BORN = 1_000_000_000
"""When the packages were last changed."""
PLANT = """
import os
kept = 41
with open("secret", "w") as file:
    file.write("theirs")
os.chmod("secret", 0o640)
print(os.path.abspath("secret"))
"""
UNTOUCHED = (
    "import os\n"
    "kept, open('secret').read(), oct(os.stat('secret').st_mode), sorted(os.listdir('.'))"
)


@pytest.fixture(scope="module")
def bait() -> Iterator[dict[str, Any]]:
    """Files and listeners on the host that anybody may use, in the places that everybody knows."""
    with contextlib.ExitStack() as stack:
        files, sockets = [], []
        for place in ("/var/tmp", "/tmp", "/dev/shm"):
            folder = tempfile.mkdtemp(prefix="bait-", dir=place)
            stack.callback(shutil.rmtree, folder)
            Path(folder).chmod(0o777)
            file = Path(folder, "canary")
            file.write_text("canary", encoding="utf-8")
            file.chmod(0o666)
            files.append(str(file))
            sockets.append(f"{folder}/socket")
        abstract = f"bait-{os.getpid()}"
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        for address in (*sockets, f"\0{abstract}"):
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(address)
            listener.listen(8)
        for path in sockets:
            Path(path).chmod(0o777)
        with pytest.MonkeyPatch.context() as patch:
            # Before any jail is started.
            patch.setenv("API_KEY", "secret")
            yield {
                "files": files,
                "sockets": sockets,
                "abstract": abstract,
                "tcp": tcp.getsockname(),
                "repository": __file__,
            }


@pytest.fixture(scope="module")
def packages() -> Iterator[str]:
    """A folder of packages that belongs to the very account that sessions run as."""
    # firejail has a /var/tmp of its own.
    place = next(path for path in ("/opt", str(Path.home())) if os.access(path, os.W_OK))
    folder = Path(tempfile.mkdtemp(prefix="toolsvc-test-", dir=place))
    account = find_account(SandboxConfig())
    try:
        (folder / "package").mkdir()
        (folder / "module.py").write_text("answer = 42", encoding="utf-8")
        for path in (folder, *folder.iterdir()):
            path.chmod(0o755)
            os.utime(path, (BORN, BORN))
            if account.other:
                os.chown(path, account.uid, account.gid)
        yield str(folder)
    finally:
        shutil.rmtree(folder)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox(
    walls: dict[str, Any], bait: dict[str, Any], packages: str
) -> AsyncIterator[Sandbox]:
    bait["packages"] = packages
    async with Sandbox(SandboxConfig(**walls, **SMALL, packages=(packages,))) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def victim(
    bait: dict[str, Any], sandbox: Sandbox
) -> AsyncIterator[tuple[SandboxSession, str]]:
    """Another trajectory's session, and the path of its secret."""
    session = await sandbox.take()
    here = psutil.Process()
    below = [child.pid for child in here.children(recursive=True)]
    above = [here.ppid()] if here.ppid() > 1 else []  # in a session 1 is its own jail's first
    bait["pids"] = [here.pid, *above, *below]
    outcome = await session.run(PLANT, limit=10, keep=KEEP)
    yield session, outcome.output.strip()
    session.close()


class Attackers:
    """Sessions that attack. Where every session has a jail of its own, whose start costs more than
    all that is tried in it, a session makes several tries one after the other, each in an empty
    folder, for as long as it gets out of them."""

    def __init__(self, sandbox: Sandbox, bait: dict[str, Any], theirs: str) -> None:
        shared = sandbox.level.shared_jail
        target = {**bait, "shared": shared, "theirs": theirs}
        self._prelude = f"TARGET = {target!r}\n{PRELUDE}"
        self._sandbox = sandbox
        self._keeps = not shared
        self._kept: SandboxSession | None = None
        self._tries = 0

    async def alone(self, code: str, limit: float) -> Outcome:
        """In a session that nobody used before, and nobody uses after."""
        session = await self._sandbox.take()
        try:
            await _run_well(session, self._prelude)
            return await session.run(code, limit=limit, keep=KEEP)
        finally:
            session.close()

    async def beside_others(self, code: str, limit: float) -> Outcome:
        if not self._keeps:
            return await self.alone(code, limit)
        if self._kept is None:
            self._kept, self._tries = await self._sandbox.take(), 0
            await _run_well(self._kept, REMEMBER_HOME)
        session, self._kept = self._kept, None
        self._tries += 1
        try:
            await _run_well(session, CLEAN + self._prelude)
            outcome = await session.run(code, limit=limit, keep=KEEP)
            if outcome.ending is Ending.EXCEPTION and self._tries < TRIES_A_SESSION:
                self._kept = session
        finally:
            if self._kept is None:
                session.close()
        return outcome

    def close(self) -> None:
        if self._kept is not None:
            self._kept.close()


async def _run_well(session: SandboxSession, code: str) -> None:
    outcome = await session.run(code, limit=10, keep=KEEP)
    assert outcome.ending is Ending.OK, outcome


TRIES_A_SESSION = 20
"""Descriptors that tries left open are no reason yet why another is refused."""
REMEMBER_HOME = "import os\nhome = os.getcwd()"
CLEAN = """
import os, shutil
os.chdir(home)
for entry in os.scandir():
    if entry.is_dir(follow_symlinks=False):
        shutil.rmtree(entry)
    else:
        os.unlink(entry)
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def attackers(
    bait: dict[str, Any], sandbox: Sandbox, victim: tuple[SandboxSession, str]
) -> AsyncIterator[Attackers]:
    made = Attackers(sandbox, bait, victim[1])
    yield made
    made.close()


def check_bait(bait: dict[str, Any]) -> None:
    for path in bait["files"]:
        assert Path(path).read_text(encoding="utf-8") == "canary"
        assert sorted(os.listdir(Path(path).parent)) == ["canary", "socket"]
    for path in (bait["packages"], f"{bait['packages']}/module.py", f"{bait['packages']}/package"):
        status = os.stat(path)
        assert (status.st_mode & 0o7777, int(status.st_mtime)) == (0o755, BORN), path
        assert not os.listxattr(path)


async def check_untouched(bait: dict[str, Any], victim: SandboxSession) -> None:
    outcome = await victim.run(UNTOUCHED, limit=10, keep=KEEP)
    assert outcome.output.strip() == "(41, 'theirs', '0o100640', ['secret'])", outcome
    check_bait(bait)


ALIKE = [name for name in TRIES if name.startswith("system calls: ")]
"""One filter refuses these behind every wall, so they are tried behind two."""


@pytest.mark.parametrize("name", [name for name in TRIES if name not in ALIKE])
async def test_it_is_refused(
    attackers: Attackers, bait: dict[str, Any], victim: tuple[SandboxSession, str], name: str
) -> None:
    # What a session shares with others is asked from where nobody left anything.
    attack = attackers.alone if name.startswith("sessions: ") else attackers.beside_others
    outcome = await attack(TRIES[name], limit=10)
    assert outcome.ending in (Ending.EXCEPTION, Ending.OUT_OF_MEMORY), outcome
    error = outcome.output.strip().rpartition("\n")[2].partition(":")[0]
    assert error in DENIALS, outcome
    await check_untouched(bait, victim[0])


TWO_WALLS = pytest.mark.parametrize("walls", QUICK_WALLS, indirect=True, scope="module")


@TWO_WALLS
@pytest.mark.parametrize("name", ALIKE)
async def test_a_system_call_is_refused(
    attackers: Attackers, bait: dict[str, Any], victim: tuple[SandboxSession, str], name: str
) -> None:
    await test_it_is_refused(attackers, bait, victim, name)


@pytest.mark.parametrize("name", [name for name in BOMBS if not BOMBS[name].alike])
async def test_it_is_bounded(
    attackers: Attackers, bait: dict[str, Any], victim: tuple[SandboxSession, str], name: str
) -> None:
    bomb = BOMBS[name]
    outcome = await attackers.alone(bomb.code, bomb.limit)
    assert outcome.ending in bomb.endings, outcome
    assert bomb.says in outcome.output + outcome.reason, outcome
    assert len(outcome.output) <= KEEP
    await check_untouched(bait, victim[0])


@TWO_WALLS
@pytest.mark.parametrize("name", [name for name in BOMBS if BOMBS[name].alike])
async def test_it_is_bounded_behind_every_wall_alike(
    attackers: Attackers, bait: dict[str, Any], victim: tuple[SandboxSession, str], name: str
) -> None:
    await test_it_is_bounded(attackers, bait, victim, name)


async def test_what_bombs_left_is_gone(
    sandbox: Sandbox, bait: dict[str, Any], victim: tuple[SandboxSession, str]
) -> None:
    """The file system that sessions share has its space and its files back."""
    code = """
import os
held = os.statvfs(".")
(held.f_blocks - held.f_bfree) * held.f_frsize, held.f_files - held.f_ffree
"""
    for _ in range(100):
        stored, files = eval((await victim[0].run(code, limit=10, keep=KEEP)).output)
        if stored < 1 << 20 and files < 100:
            break
        await victim[0].run("import time; time.sleep(0.05)", limit=10, keep=KEEP)
    assert stored < 1 << 20
    assert files < 100
