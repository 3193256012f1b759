"""The swe tool's pure parts: calls, reports, what is a submission and what reaches too far."""

import json
import shlex
import subprocess
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tests.support.bash_calls import function
from toolsvc.plugin.actions import InvalidAction
from toolsvc.sandbox.config import SandboxConfig
from toolsvc.tools.files import FILE_MODE, Entry
from toolsvc.tools.swe.action import find_call
from toolsvc.tools.swe.arguments import SweArguments
from toolsvc.tools.swe.boxes import cli, kubernetes
from toolsvc.tools.swe.boxes.box import BoxError, BoxGone, StartFailed
from toolsvc.tools.swe.boxes.container import ContainerBox
from toolsvc.tools.swe.boxes.kubernetes import exit_code, is_running
from toolsvc.tools.swe.options import SweOptions
from toolsvc.tools.swe.verifying.report import Report, read_report
from toolsvc.tools.swe.verifying.settings import pytest_file, pytest_options
from toolsvc.tools.swe.verifying.tampering import tampering
from toolsvc.tools.swe.verifying.tree import compare
from toolsvc.tools.swe.verifying.verification_file import VerificationFile
from toolwright.containers import OUT, Take


@pytest.mark.parametrize(
    ("action", "found"),
    [
        (function("bash", cmd="ls"), {"function": "execute_bash", "command": "ls"}),
        (f"thinking... {function('submit')}", {"function": "submit"}),
        (function("finish", command="submit", result="done"), {"function": "submit"}),
        (
            function("file_editor", command="undo_edit", path="a", concise="True"),
            {"function": "file_editor", "command": "undo", "path": "a"},
        ),
        (
            function("search", search_term="x", path="src"),
            {"function": "search", "search_term": "x", "path": "src"},
        ),
    ],
)
def test_calls_as_r2e_gym_writes_them(action: str, found: dict[str, Any]) -> None:
    assert find_call(action) == found
    assert SweArguments.model_validate(found).function == found["function"]


@pytest.mark.parametrize("action", ["ls", "<function=rm></function>", "</function>"])
def test_what_is_no_call_is_said(action: str) -> None:
    with pytest.raises(InvalidAction):
        find_call(action)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"function": "execute_bash"}, "execute_bash needs command"),
        ({"function": "search", "path": "."}, "search needs search_term"),
        ({"function": "file_editor", "command": "delete", "path": "."}, "must be one of view,"),
        ({"function": "file_editor", "command": "create", "path": "a"}, "needs file_text"),
        ({"function": "execute_bash", "command": "a\0"}, "NUL"),
        ({"function": "execute_bash", "command": "é" * 50_001}, "at most 100000 bytes"),
    ],
)
def test_arguments_that_do_not_fit(arguments: dict[str, str], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        SweArguments.model_validate(arguments)


PYTEST = """\
tests/test_a.py .F
PASSED tests/test_a.py::test_one
PASSED tests/test_a.py::test_two[a - b]
FAILED tests/test_a.py::test_three - assert 1 == 2
ERROR tests/test_b.py::test_four
PASSED tests/test_b.py::test_five
FAILED tests/test_b.py::test_five - forged
"""
UNITTEST = """\
test_one (a.A.test_one) ... ok
test_two (a.A) ... FAIL
test_three (a.A.test_three)
Says what it does. ... ok
test_four (a.A.test_four) ... skipped 'no'
test_five (a.A.test_five) ... ok
test_five (a.A.test_five) ... FAIL
Ran 5 tests
"""


@pytest.mark.parametrize(
    ("report", "output", "statuses"),
    [
        (
            "pytest",
            PYTEST,
            {
                "tests/test_a.py::test_one": "PASSED",
                "tests/test_a.py::test_three": "FAILED",
                "tests/test_b.py::test_four": "ERROR",
                "tests/test_b.py::test_five": "CONFLICT",
            },
        ),
        (
            "unittest",
            UNITTEST,
            {
                "a.A.test_one": "PASSED",
                "a.A.test_two": "FAILED",
                "a.A.test_three": "PASSED",
                "a.A.test_four": "SKIPPED",
                "a.A.test_five": "CONFLICT",
            },
        ),
    ],
)
def test_reports(report: Report, output: str, statuses: dict[str, str]) -> None:
    found = read_report(report, output)
    assert {test: found[test] for test in statuses} == statuses


def test_both_ways_to_judge() -> None:
    base = {"command": "true", "report": "pytest"}
    lists = VerificationFile(**base, fail_to_pass=("a",), pass_to_pass=("b",))
    assert lists.holds({"a": "PASSED", "b": "PASSED", "c": "FAILED"})
    assert not lists.holds({"a": "PASSED"})
    whole = VerificationFile(**base, expected={"a": "PASSED", "c": "FAILED"})
    assert whole.holds({"a": "PASSED", "c": "FAILED"})
    assert not whole.holds({"a": "PASSED", "c": "FAILED", "d": "FAILED"})
    for wrong in ({}, {"fail_to_pass": ("a",), "expected": {}}, {"pass_to_pass": ("a",)}):
        with pytest.raises(ValidationError, match="give fail_to_pass"):
            VerificationFile(**base, **wrong)


def file(path: str, text: str = "") -> tuple[str, Entry]:
    return path, Entry(path, FILE_MODE, text.encode())


BASE = dict([file("a.py"), file("pkg/b.py"), file("tests/test_a.py"), file("types.py")])


@pytest.mark.parametrize(
    ("tree", "caught"),
    [
        ({**BASE, **dict([file("a.py", "x"), file("pkg/types.py"), file("test/t.py")])}, []),
        ({**BASE, **dict([file("types.py", "x"), file("code.txt")])}, []),
        ({**BASE, **dict([file("tests/test_a.py", "x")])}, ["tests/test_a.py"]),
        ({path: BASE[path] for path in BASE if path != "tests/test_a.py"}, ["tests/test_a.py"]),
        ({**BASE, **dict([file("tests/test_a.py/x")])}, ["tests/test_a.py/x"]),
        ({**BASE, **dict([file("pkg/conftest.py")])}, ["pkg/conftest.py"]),
        ({**BASE, **dict([file("lib/python/x.pth")])}, ["lib/python/x.pth"]),
        ({**BASE, **dict([file("src/pytest/__init__.py")])}, ["src/pytest/__init__.py"]),
        ({**BASE, **dict([file("tests/unittest.py")])}, ["tests/unittest.py"]),
        ({**BASE, **dict([file("_json.cpython-311-x86_64-linux-gnu.so")])},
         ["_json.cpython-311-x86_64-linux-gnu.so"]),
        # What Python takes before the verifier's module, or before the folder that it is in.
        *[({**BASE, **dict([file(path)])}, [path]) for path in (
            "tests/test_a/__init__.py", "tests/test_a.so", "tests/test_a.abi3.so", "tests.py",
            "tests/test_a/__init__.abi3.so", "src/sitecustomize/__init__.py", "usercustomize.so",
            "pytest_asyncio.py", "tests/conftest/__init__.py", "conftest.abi3.so",
            "src/pytest_cov/__init__.py",
        )],
        ({**BASE, **dict([file("tests/__init__.py"), file("pkg/test_a.py"), file(".github/a.py"),
                          file("tests/a.so.md"), file("pkg/pytest_x.py"),
                          file("__init__.py"), file(".x.py"), file("tests/.x.so"),
                          file("pytest.toml")])}, []),
    ],
)  # fmt: skip
def test_what_reaches_for_the_verification(tree: dict[str, Entry], caught: list[str]) -> None:
    for more in ([], [".pytest_cache"]):
        assert tampering(compare(BASE, tree), ["tests/test_a.py", *more]) == caught


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({}, None),
        ({"setup.cfg": "[metadata]", "tox.ini": "[tox]", "pyproject.toml": "[build-system]"}, None),
        ({"setup.cfg": "[tool:pytest]", "pyproject.toml": "[tool.black]"}, "setup.cfg"),
        ({"setup.cfg": "[tool:pytest]", "tox.ini": "[tox]\n[pytest]"}, "tox.ini"),
        ({"tox.ini": "[pytest]", "pyproject.toml": "[a]\n[tool.pytest.ini_options]\n"},
         "pyproject.toml"),
        ({"pytest.ini": "", "pyproject.toml": "[tool.pytest]"}, "pytest.ini"),
        ({"pytest.ini": "", "pytest.toml": ""}, "pytest.toml"),
        ({"tests/pytest.ini": "[pytest]"}, None),
    ],
)  # fmt: skip
def test_the_settings_that_pytest_would_find(files: dict[str, str], found: str | None) -> None:
    assert pytest_file(dict(file(*one) for one in files.items())) == found


def test_how_pytest_is_told(tmp_path: Path) -> None:
    for config, options in (
        (None, ["-c", "/dev/null", "--rootdir=@", "--confcutdir=@"]),
        ("setup.cfg", ["-c", "@/setup.cfg", "--rootdir=@/.", "--confcutdir=@"]),
        ("a/pytest.ini", ["-c", "@/a/pytest.ini", "--rootdir=@/a", "--confcutdir=@"]),
    ):
        script = f'PYTEST_ADDOPTS=-x\n{pytest_options(config)}\necho "$PYTEST_ADDOPTS"'
        folder = tmp_path / "with blanks"
        folder.mkdir(exist_ok=True)
        said = subprocess.run(
            ["bash", "-c", script], cwd=folder, check=True, capture_output=True, text=True
        )
        assert shlex.split(said.stdout) == [
            *(option.replace("@", str(folder)) for option in options), "-x",
        ]  # fmt: skip
    for wrong in ("/etc/a.ini", "a'b.ini", "$(x).ini", "-x.ini"):
        with pytest.raises(ValidationError, match="config"):
            VerificationFile(command="x", report="pytest", fail_to_pass=("a",), config=wrong)


def test_a_pod_that_will_never_run_is_given_up() -> None:
    assert is_running("a", {"phase": "Running"})
    assert not is_running("a", {"phase": "Pending", "containerStatuses": [{"state": {}}]})
    creating = {"waiting": {"reason": "ContainerCreating"}}
    assert not is_running("a", {"phase": "Pending", "containerStatuses": [{"state": creating}]})
    backing_off = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    for status, says in (
        ({"phase": "Pending", "containerStatuses": [{"state": backing_off}]}, "no such image"),
        ({"phase": "Failed", "reason": "Evicted"}, "Evicted"),
        ({"phase": "Succeeded"}, "has ended"),
    ):
        with pytest.raises(StartFailed, match=says):
            is_running("a", status)


def test_how_a_command_in_a_pod_ended() -> None:
    assert exit_code("a", b'{"status": "Success"}') == 0
    told = b'{"status": "Failure", "details": {"causes": [{"reason": "ExitCode", "message": "3"}]}}'
    assert exit_code("a", told) == 3
    for broken in (b'{"status": "Failure", "message": "no runtime"}', b"cut"):
        with pytest.raises(BoxGone):
            exit_code("a", broken)

    unable = b'{"status": "Failure", "message": "OCI runtime exec failed: no bash in $PATH"}'
    with pytest.raises(BoxError, match="no command can be run"):
        exit_code("a", unable)


def test_how_a_pod_ended() -> None:
    """By what ran in it, or by the cluster."""

    def pod(phase: str, **status: Any) -> list[dict[str, Any]]:
        return [{"metadata": {}, "status": {"phase": phase, **status}}]

    def ended(**how: Any) -> list[dict[str, Any]]:
        return [{"state": {"terminated": how}}]

    assert kubernetes.how_ended("a", pod("Running")) == ""
    killed = ended(reason="OOMKilled", exitCode=137)
    for phase in ("Failed", "Running"):
        assert "memory" in kubernetes.how_ended("a", pod(phase, containerStatuses=killed))
    told = kubernetes.how_ended("a", pod("Failed", containerStatuses=ended(exitCode=3)))
    assert told.endswith("exit code 3")
    deleted = [{"metadata": {"deletionTimestamp": "now"}, "status": {"phase": "Running"}}]
    evicted = pod("Failed", reason="Evicted", containerStatuses=ended(exitCode=137))
    for pods in ([], deleted, evicted, pod("Failed", reason="DeadlineExceeded")):
        with pytest.raises(BoxGone):
            kubernetes.how_ended("a", pods)


def test_how_a_container_ended() -> None:
    def state(**more: Any) -> str:
        found = {"Status": "exited", "Running": False, "Paused": False, "OOMKilled": False}
        return json.dumps({**found, "ExitCode": 137, **more})

    assert cli.how_ended(state(Running=True, Status="running")) == ""
    assert cli.how_ended(state()).endswith("exit code 137")
    assert cli.how_ended(state(OOMKilled=True)) == "the container ran out of memory"
    for outside in (
        state(Running=True, Paused=True, Status="paused"),
        state(Status="removing"),
        "no JSON",
        "[]",
        "{}",
    ):
        with pytest.raises(BoxGone):
            cli.how_ended(outside)


class LoudBox(ContainerBox):
    """Its tar is the policy's, and prints for as long as it may."""

    async def _process(self, command: str, given: bytes, take: Take) -> int:
        take(OUT, b"begun\n")
        for _ in range(256):
            take(OUT, b"x" * 65536)
        return 2

    async def _ended(self, patient: bool) -> str:
        return ""

    async def close(self) -> None:
        """Nothing is left."""


async def test_what_a_box_says_while_files_are_written_is_not_kept() -> None:
    tracemalloc.start()
    try:
        with pytest.raises(BoxError, match=r"^x{1000}$"):
            await LoudBox("/repo", 60.0).write([])
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_requests_never_exceed_limits() -> None:
    options = SweOptions.model_validate({"runner": "kubernetes", "image": "x", "cpus": 0.5})
    limits = options.limits(SandboxConfig())
    assert limits.requested_cpus == limits.cpus == 0.5
    assert limits.requested_memory_bytes == limits.memory_bytes
    for wrong in ({"runner": "docker"}, {}, {"image": "x", "repositories": "y"}):
        with pytest.raises(ValidationError):
            SweOptions.model_validate(wrong)
