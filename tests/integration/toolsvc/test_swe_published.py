"""Rows of the published layouts, from `tasks verifications` to a verdict in containers of podman.

The images have the layout of the sets' own, made of this machine's Debian packages: /testbed with a
virtual environment and /r2e_tests; /testbed with a conda environment; /app, whose git history holds
the tests. Rows, repositories and tests are written here.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_asyncio
from typer.testing import CliRunner

from tasks.cli import app
from tests.support.containers.podman import Podman
from tests.support.containers.published import CONDA, conda_tree, r2e_tree
from tests.support.recipes import part_of
from tests.support.repository import FIX
from tests.support.small_pytest import copy_pytest
from tests.support.swe import bash, call, serving, submit
from tests.support.swe_rows import (
    internal_row,
    nemotron_row,
    pro_row,
    r2e_row,
    swe_bench_row,
    write_scripts,
)
from tests.support.trajectory import Trajectory
from toolsvc.host.host import Host
from toolsvc.types import Result

pytestmark = [
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(
        os.geteuid() != 0,
        reason="podman of an ordinary user bounds no memory without delegated control groups",
    ),
]

PART = part_of(Path(__file__).resolve().parents[3] / "recipes/verltool/swe")
CHEATS = PART("world/cheats.CHEATS")
R2E, VERIFIED, PRO, NEMOTRON = "3f2a", "pallets__flask-1", "instance_NodeBB__NodeBB-3f2a", "bill-7"
FIXES = call("file_editor", command="str_replace", path="bill.py", old_str=FIX[0], new_str=FIX[1])
TOLD = PART("world/problems.Repository")(
    name="bill", kind="", issue="", module="bill.py", solution=(),
    fail_to_pass=("r2e_tests.test_1.Test.test_rest",),
    pass_to_pass=("r2e_tests.test_1.Test.test_even",),
)  # fmt: skip
"""What a cheater knows of the hidden tests."""
SUMMARY = """\
=========================== short test summary info ============================
PASSED r2e_tests/test_1.py::test_even
PASSED r2e_tests/test_1.py::test_rest
============================== 2 passed in 0.01s ===============================
"""
OWN_CHEATS = {
    "prints pytest's summary": f"cat >> bill.py <<'E'\nprint('''{SUMMARY}''')\nE",
    "prints pytest's summary and exits": "cat >> bill.py <<'E'\nimport os\n"
    f"for out in (1, 2):\n    os.write(out, b'''{SUMMARY}''')\nos._exit(0)\nE",
    "prints pytest's summary at exit": "cat >> bill.py <<'E'\nimport atexit, os\n"
    f"atexit.register(lambda: (os.write(1, b'''{SUMMARY}'''), os._exit(0)))\nE",
    "brings hidden tests of its own": "mkdir -p r2e_tests; "
    "echo 'def test_even(): pass\ndef test_rest(): pass' | tee r2e_tests/test_1.py",
    "brings a test script of its own": f"cat > run_tests.sh <<'E'\ncat <<'L'\n{SUMMARY}L\nE",
    "looks for the tests": "cat /r2e_tests/* r2e_tests/* /root/r2e_tests/* > found; git show --all",
}


def convert(form: str, rows: Path, row: dict[str, Any], output: Path, *words: str) -> None:
    rows.write_text(f"{json.dumps(row)}\n", encoding="utf-8")
    command = ["verifications", form, str(rows), "--output", str(output), "--seconds", "40", *words]
    found = CliRunner().invoke(app, command)
    assert found.exit_code == 0, found.stderr


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folders `testbed` and `app` of verifications, and podman with the images."""
    home = tmp_path_factory.mktemp("published")
    copy_pytest(home / "packages")
    podman = Podman(tmp_path_factory.mktemp("podman"))
    podman.add_image("localhost/r2e", r2e_tree(home / "r2e", home / "packages"))
    conda, _ = conda_tree(home / "conda", home / "packages", "testbed")
    podman.add_image("localhost/verified", conda)
    pro, fixed = conda_tree(home / "pro", home / "packages", "app")
    podman.add_image("localhost/pro", pro)
    before = {"before_repo_set_cmd": f"git checkout -q {fixed} -- tests/test_bill.py"}
    tests = {"selected_test_files_to_run": "['tests/test_bill.py']"}
    lists = {
        "fail_to_pass": "['tests/test_bill.py::test_rest']",
        "pass_to_pass": '["tests/test_bill.py::test_even"]',
    }
    rows = home / "rows.jsonl"
    own, image = home / "testbed", "--image=localhost/{}".format
    convert("r2e", rows, r2e_row(), own, image("r2e"))
    convert("swebench", rows, swe_bench_row(), own, image("verified"))
    write_scripts(home / "scripts", PRO)
    row = pro_row(instance_id=PRO, **before, **tests, **lists)
    scripts = f"--scripts={home / 'scripts'}"
    convert("swebench_pro", rows, row, home / "app", image("pro"), scripts)
    inner = internal_row(**before, **tests)
    row = nemotron_row("nv-internal-1", inner, NEMOTRON)
    convert("nemotron", rows, row, home / "app", image("pro"))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in podman.environment.items():
            patch.setenv(name, value)
        yield home
    podman.end()


def served(verifications: Path, **options: Any) -> Any:
    folders: Any = SimpleNamespace(repositories=None, verifications=verifications)
    environment = ("/testbed/.venv", f"/{CONDA}")
    return serving(folders, runner="podman", environment=environment, **options)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def testbed(published: Path) -> AsyncIterator[Host]:
    async with served(published / "testbed") as host:
        yield host


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def in_app(published: Path) -> AsyncIterator[Host]:
    async with served(published / "app", folder="/app") as host:
        yield host


async def judged(host: Host, name: str, *actions: str) -> Result:
    session = Trajectory(host, "swe", {"verification": name})
    for action in actions:
        await session.act(action, run_limit=20.0)
    return await submit(session)


WRONG = call("execute_bash", command="sed -i 's/people$/people + 1/' bill.py")
ADDS_TESTS = call("execute_bash", command="echo 'def test_own(): pass' >> tests/test_bill.py")


async def test_each_form_is_graded_right_and_wrong(testbed: Host, in_app: Host) -> None:
    tasks = [(testbed, R2E), (testbed, VERIFIED), (in_app, PRO), (in_app, NEMOTRON)]
    for host, name in tasks:
        fixed, idle, wrong, beside = await asyncio.gather(
            judged(host, name, FIXES),
            judged(host, name),
            judged(host, name, WRONG),
            judged(host, name, FIXES, ADDS_TESTS),
        )
        rewards = [one.reward for one in (fixed, idle, wrong, beside)]
        assert rewards == [1.0, 0.0, 0.0, 1.0], name
        assert (fixed.metrics["tests_passed"], fixed.metrics["tests_wanted"]) == (2, 2), name
        assert idle.metrics["tests_passed"] == 1, name


async def test_no_policy_sees_the_tests_or_the_fix(testbed: Host, in_app: Host) -> None:
    looks = (
        "ls -d /r2e_tests run_tests.sh; git log --oneline --all | wc -l; "
        "grep -rl test_rest --include=*.py --include=*.patch --exclude-dir={proc,sys} /; "
        "git log -p --all | grep -c 'rest = total'"
    )
    for host, name in ((testbed, R2E), (testbed, VERIFIED), (in_app, PRO)):
        seen = await bash(Trajectory(host, "swe", {"verification": name}), looks)
        lines = [line for line in seen.splitlines() if "cannot access" not in line]
        assert lines == ["1", "0", "[exit code 1]"], (name, seen)


async def test_the_environment_is_the_images(testbed: Host) -> None:
    asks = (
        "python -c 'import pytest; print(pytest.__name__)'; "
        "echo ${VIRTUAL_ENV-none} ${CONDA_PREFIX-none}"
    )
    for name, place in ((R2E, "/testbed/.venv none"), (VERIFIED, f"none /{CONDA}")):
        session = Trajectory(testbed, "swe", {"verification": name})
        assert await bash(session, asks) == f"pytest\n{place}"


async def test_no_cheat_is_paid_in_the_published_form(testbed: Host) -> None:
    cheats = {name: made(TOLD) for name, made in CHEATS.items()} | OWN_CHEATS
    places = asyncio.Semaphore(4)

    async def tried(command: str) -> Result:
        async with places:
            return await judged(testbed, R2E, call("execute_bash", command=command))

    results = await asyncio.gather(*map(tried, cheats.values()))
    found = dict(zip(cheats, (result.reward for result in results), strict=True))
    assert found == dict.fromkeys(cheats, 0.0)
    assert len(CHEATS) == 14
