"""Every cheat before every judge that reads a box: each is worth what an honest failure is.

The judges read unittest's report, pytest's report, and Harbor's reward file. In all three the tests
run the program in a process of its own, and Harbor's under an account of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from tasks.cli import app
from tests.support.containers.podman import Podman
from tests.support.forgers import NAMES, OWN, READS_THE_TESTS, TOLD, WORLDS
from tests.support.repository import commit, git
from tests.support.small_pytest import copy_pytest
from tests.support.swe import bash, serving, submit
from tests.support.trajectory import Trajectory
from toolsvc.errors import Reason, Refused
from toolsvc.host.host import Host

pytestmark = pytest.mark.slow

HARBOR = Path(__file__).resolve().parents[3] / "examples/harbor"
EXAMPLE = HARBOR / "split-bill"
PARTS = 3
"""Tests among which the cheats in containers are divided: each has a time limit."""
AT_ONCE = 4
"""Trajectories: what a machine of two cores can do without timeouts."""
FIX = (EXAMPLE / "solution/solve.sh").read_text(encoding="utf-8").replace("/app/", "")
TESTS = """\
import subprocess
import unittest


class Test(unittest.TestCase):
    def pays(self, *words):
        ran = subprocess.run(
            ["python3", "-I", "bill.py", *words], stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=5,
        )
        return [int(one) for one in ran.stdout.split()]

    def test_even(self):
        self.assertEqual(self.pays("100", "4"), [25, 25, 25, 25])
"""
HIDDEN = f"""{TESTS}
    def test_rest(self):
        self.assertEqual(self.pays("100", "3"), [34, 33, 33])
        self.assertEqual(self.pays("5", "4"), [2, 1, 1, 1])
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository, and its verifications `unittest` and `pytest`."""
    folder = tmp_path_factory.mktemp("forgery")
    repository = folder / "repositories/bill"
    (repository / "tests").mkdir(parents=True)
    shutil.copy(EXAMPLE / "environment/bill.py", repository)
    (repository / "tests/__init__.py").touch()
    (repository / "tests/test_bill.py").write_text(TESTS, encoding="utf-8")
    git(repository, "init", "-q")
    commit(repository, "Split bills")
    copy_pytest(folder / "packages")
    pytest_names = [f"tests/test_bill.py::Test::{name}" for name in NAMES]
    for report, command, names in (
        ("unittest", "python3 -m unittest -v tests.test_bill",
         [*TOLD.pass_to_pass, *TOLD.fail_to_pass]),
        ("pytest", "PYTHONPATH=.v python3 -m pytest -rA tests/test_bill.py", pytest_names),
    ):  # fmt: skip
        files = folder / "verifications" / report / "files"
        (files / "tests").mkdir(parents=True)
        (files / "tests/test_bill.py").write_text(HIDDEN, encoding="utf-8")
        if report == "pytest":
            shutil.copytree(folder / "packages", files / ".v")
        (files.parent / "verification.toml").write_text(
            f'command = "{command}"\nreport = "{report}"\nseconds = 60\n'
            f"fail_to_pass = {json.dumps(names)}\n",
            encoding="utf-8",
        )
    return folder


def converted(output: Path) -> None:
    command = ["verifications", "harbor", str(HARBOR), "--output", str(output)]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory, home: Path) -> Iterator[None]:
    """podman with the example's image, in which its author forgot tests and solution."""
    if os.geteuid() != 0:
        pytest.skip("podman of an ordinary user bounds no memory without delegated control groups")
    podman = Podman(tmp_path_factory.mktemp("podman"))
    try:
        root = home / "root"
        shutil.copytree(home / "repositories/bill", root / "app")
        for name in ("tests", "solution"):
            shutil.copytree(EXAMPLE / name, root / name)
        podman.add_image("localhost/split-bill", root)
        with pytest.MonkeyPatch.context() as patch:
            for name, value in podman.environment.items():
                patch.setenv(name, value)
            yield
    finally:
        podman.end()


@asynccontextmanager
async def local(home: Path, report: str) -> AsyncIterator[tuple[Host, dict[str, str]]]:
    folders: Any = SimpleNamespace(
        repositories=home / "repositories/bill", verifications=home / "verifications"
    )
    async with serving(folders) as host:
        yield host, {"verification": report}


@asynccontextmanager
async def harbor(home: Path) -> AsyncIterator[tuple[Host, dict[str, str]]]:
    converted(home / "harbor")
    folders: Any = SimpleNamespace(repositories=None, verifications=home / "harbor")
    async with serving(folders, runner="podman", folder="/app") as host:
        yield host, {"verification": "split-bill"}


async def rewards(
    host: Host, task: dict[str, str], commands: dict[str, str]
) -> dict[str, float | None]:
    places = asyncio.Semaphore(AT_ONCE)

    async def one(command: str) -> float | None:
        async with places:
            session = Trajectory(host, "swe", task)
            await bash(session, command)
            return (await submit(session)).reward

    return dict(zip(commands, await asyncio.gather(*map(one, commands.values())), strict=True))


HONEST = {"a fix": FIX, "nothing": "true"}
PAID = {"a fix": 1.0, "nothing": 0.0}


@pytest.mark.parametrize("report", ["unittest", "pytest"])
async def test_no_cheat_is_paid_in_a_local_box(home: Path, report: str) -> None:
    cheats = {**WORLDS, **OWN}
    async with local(home, report) as (host, task):
        assert await rewards(host, task, HONEST) == PAID
        assert await rewards(host, task, cheats) == dict.fromkeys(cheats, 0.0)


@pytest.mark.parametrize("part", range(PARTS))
async def test_no_cheat_is_paid_in_a_container(image: None, home: Path, part: int) -> None:
    cheats = dict(list(OWN.items())[part::PARTS])
    async with harbor(home) as (host, task):
        assert await rewards(host, task, cheats) == dict.fromkeys(cheats, 0.0)


async def test_an_account_of_its_own_keeps_a_program_from_its_tests(
    image: None, home: Path
) -> None:
    reads = {"reads": READS_THE_TESTS}
    async with harbor(home) as (host, task):
        assert await rewards(host, task, HONEST) == PAID
        assert await rewards(host, task, reads) == {"reads": 0.0}
    async with local(home, "unittest") as (host, task):
        assert await rewards(host, task, reads) == {"reads": 1.0}


async def test_a_local_box_has_no_reward_files(home: Path) -> None:
    converted(home / "verifications")
    async with local(home, "split-bill") as (host, task):
        with pytest.raises(Refused, match="a local box has one account") as caught:
            await Trajectory(host, "swe", task).open()
    assert caught.value.reason is Reason.INVALID_REQUEST
