"""Harbor task folders as tasks and verifications, and what of them is refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tasks.cli import app
from tasks.sets import Reading
from tasks.sets.task_folders import workdir_of
from toolsvc.tools.files import FILE_MODE, Entry
from toolsvc.tools.swe.verifying.tampering import tampering
from toolsvc.tools.swe.verifying.tree import compare
from toolsvc.tools.swe.verifying.verification import Verification, read_verification
from toolwright.reading.task_rows.refusal import RowRefused

EXAMPLE = Path(__file__).resolve().parents[3] / "examples/harbor/split-bill"


@pytest.fixture
def task(tmp_path: Path) -> Path:
    """A copy of the example in a folder of tasks."""
    folder = tmp_path / "tasks/split-bill"
    shutil.copytree(EXAMPLE, folder)
    return folder


def run(task: Path, *words: str) -> tuple[int, str]:
    output = task.parents[1] / "verifications"
    command = ["verifications", "harbor", str(task.parent), "--output", str(output), *words]
    done = CliRunner().invoke(app, command)
    return done.exit_code, done.output + done.stderr


def made(task: Path, *words: str) -> Verification:
    code, said = run(task, *words)
    assert code == 0, said
    return read_verification(task.parents[1] / "verifications" / task.name, task.name, 1 << 20)


def test_a_task_and_its_verification(task: Path) -> None:
    (task / "tests/data").symlink_to("/etc")
    file = made(task).file
    assert (file.image, file.seconds) == ("localhost/split-bill", 60)
    assert (file.report, file.hide_history) == ("reward_files", False)
    assert {"/tests", "/solution", "/logs/verifier"} <= set(file.hidden)
    planted = [".toolwright-tests/numpy.py", ".toolwright-tests/a/b.txt"]
    tree = {one: Entry(one, FILE_MODE, b"") for one in planted}
    assert tampering(compare({}, tree), (), file.protected) == planted
    overlay = {entry.path: entry for entry in made(task).overlay}
    assert overlay[".toolwright-tests/test.sh"].mode & 0o111
    assert overlay[".toolwright-tests/data"].content == b"/etc", "a link of the tests stays a link"
    (record,) = Reading("harbor", task.parent)
    assert record.question.startswith("`/app/bill.py TOTAL PEOPLE` prints")
    assert record.extra == {"verification": "split-bill", "agent_seconds": 600.0}
    assert [one.id for one in Reading("harbor", task)] == ["split-bill"]


def test_settings_of_the_task(task: Path) -> None:
    settings = (task / "task.toml").read_text("utf-8")
    settings = settings.replace("memory_mb = 512", 'docker_image = "x/bill:1"')
    (task / "task.toml").write_text(
        settings.replace("timeout_sec = 60.0", "env = {SEED = 'a b'}"), encoding="utf-8"
    )
    (task / "solution/solve.sh").write_text("touch /app/pyproject.toml", encoding="utf-8")
    file = made(task).file
    assert (file.image, file.seconds) == ("docker.io/x/bill:1", 600)
    assert "export SEED='a b'\n" in file.command
    assert "pyproject.toml" not in file.protected, "the recorded solution makes it"
    assert "conftest.py" in file.protected


@pytest.mark.parametrize(
    ("path", "text", "says"),
    [
        ("task.toml", "[[steps]]\nname = 'a'", "steps asks for several steps"),
        ("task.toml", "[environment]\ngpus = 1", "environment.gpus"),
        ("task.toml", "[environment]\nos = 'windows'", "environment.os"),
        ("task.toml", "[environment.healthcheck]\ncommand = 'x'", "environment.healthcheck"),
        ("task.toml", "[environment]\nenv = {A = '1'}", "environment.env"),
        ("task.toml", "[agent]\nuser = 'agent'", "agent.user is not root"),
        ("task.toml", "artifacts = ['/data']", "artifacts asks for files"),
        ("task.toml", "[[verifier.collect]]\ncommand = 'x'", "verifier.collect"),
        ("task.toml", "[verifier.environment]\ndocker_image = 'x'", "verifier.environment"),
        ("task.toml", "[verifier.env]\nKEY = '${KEY}'", "verifier.env.KEY is taken from the host"),
        ("task.toml", "[task", "task.toml: "),
        ("environment/docker-compose.yaml", "services: {}", "docker-compose.yaml"),
        ("environment/Dockerfile", "FROM x\nWORKDIR /app\nENTRYPOINT x", "Dockerfile: ENTRYPOINT"),
        ("environment/Dockerfile", "FROM x\nWORKDIR /app\nUSER me", "Dockerfile: USER me"),
        ("environment/Dockerfile", "FROM x\nWORKDIR /srv", "its folder is /srv"),
        ("environment/Dockerfile", "FROM x", "not named in the Dockerfile"),
        ("environment/Dockerfile", "", "not named in the Dockerfile"),
        ("tests/test.sh", "", "tests/test.sh is missing or empty"),
        ("instruction.md", "", "instruction.md is missing or empty"),
    ],
)
def test_what_cannot_be_played_is_refused_by_name(
    task: Path, path: str, text: str, says: str
) -> None:
    (task / path).write_text(text, encoding="utf-8")
    code, said = run(task)
    assert code == 1
    assert says in said


def test_an_instruction_that_is_a_link_is_not_read(task: Path) -> None:
    (task / "instruction.md").unlink()
    (task / "instruction.md").symlink_to("/etc/passwd")
    assert "instruction.md is missing or empty" in run(task)[1]


@pytest.mark.parametrize(
    ("dockerfile", "folder"),
    [
        ("FROM a\nWORKDIR /app\n", "/app"),
        ("FROM a\nworkdir '/srv'\nWORKDIR app\n", "/srv/app"),
        ("FROM a\nWORKDIR /build\nFROM b\n", ""),
        ("FROM a\n# WORKDIR /no\nRUN x && \\\n  WORKDIR /no\nWORKDIR \\\n  /app", "/app"),
        ("FROM a\nUSER root:root\nWORKDIR /app", "/app"),
    ],
)
def test_the_working_folder_of_a_dockerfile(dockerfile: str, folder: str) -> None:
    assert workdir_of(dockerfile) == folder


def test_a_folder_of_two_depths(task: Path) -> None:
    shutil.copytree(task, task.parent / "more/deep/other")
    assert [one.id for one in Reading("harbor", task.parent)] == ["other", "split-bill"]
    with pytest.raises(RowRefused):
        workdir_of('FROM a\nENTRYPOINT ["x"]')
