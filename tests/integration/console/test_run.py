"""`toolwright run` as a user has it: real processes, a real learner, the scripted sampler."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from console.machine.processes import alive
from console.record.course import CourseRecord, ProcessRecord, read_course
from tests.support.hosted_agents import ONE_CALL
from tests.support.net import free_port
from tests.support.own_run import write_own_run, write_policy
from tests.support.waiting import blocks
from toolwright.recipe.reading import registered_tables

pytestmark = pytest.mark.slow

PATIENCE = 120.0
"""Seconds for what takes ten on an idle machine."""
TOOLWRIGHT = (sys.executable, "-m", "console.cli")


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_policy(tmp_path_factory.mktemp("policy") / "tiny")


@contextmanager
def started(*words: str) -> Iterator[subprocess.Popen[str]]:
    """A command of toolwright; whatever is left of it is killed."""
    process = subprocess.Popen(
        [*TOOLWRIGHT, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            family = [process, *psutil.Process(process.pid).children(recursive=True)]
            for one in family:
                os.kill(one.pid, signal.SIGKILL)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def said(*words: str) -> tuple[int, str]:
    """(exit code, output) of a command that comes to its end."""
    done = subprocess.run(
        [*TOOLWRIGHT, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    return done.returncode, done.stdout


@contextmanager
def scripted_sampler(folder: Path, port: int) -> Iterator[None]:
    """One that nobody here starts; it must be left as it is."""
    script = str(folder / "task.py:reply")
    words = ("-m", "bench.cli", "scripted-sampler", "--script", script, "--port", str(port))
    with subprocess.Popen([sys.executable, *words], stdout=subprocess.DEVNULL) as sampler:
        try:
            until_listening(port)
            yield
            assert sampler.poll() is None
        finally:
            sampler.kill()


def until_listening(port: int) -> None:
    for _ in range(int(PATIENCE / 0.05)):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        blocks(0.05, "a server is about to listen")
    raise AssertionError(f"nobody listens at {port}")


def course_of(run: Path) -> CourseRecord:
    return read_course(run)


def process_of(run: Path, name: str) -> ProcessRecord:
    return next(p for p in read_course(run).processes if p.name == name)


def stage(run: Path) -> str:
    stages = read_course(run).stages
    return stages[-1].name if stages else ""


def steps(run: Path) -> int:
    file = run / "learner.jsonl"
    return len(file.read_text(encoding="utf-8").splitlines()) if file.exists() else 0


def wait(process: subprocess.Popen[str], condition: Any, what: str) -> None:
    for _ in range(int(PATIENCE / 0.05)):
        if condition():
            return
        assert process.poll() is None, f"it ended before {what}: {process.communicate()[0]}"
        blocks(0.05, what)
    raise AssertionError(f"waited {PATIENCE:g} s for {what}")


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    output, _ = process.communicate(timeout=PATIENCE)
    assert "Traceback" not in output
    return process.returncode, output


def test_stopped_resumed_through_a_killed_engine_done_and_gone_on_with_for_nothing(
    tmp_path: Path, policy: Path
) -> None:
    """One run in three starts of one command, beside a sampler that was there before."""
    port = free_port()
    recipe = write_own_run(
        tmp_path,
        policy,
        run={"steps": 40},
        sampler={"endpoints": [f"http://127.0.0.1:{port}"]},
        learner={"patience_steps": 2},
        console={"services": []},
    )
    with scripted_sampler(tmp_path, port):
        made = _stopped_by_ctrl_c(recipe)
        _goes_on_though_the_engine_is_killed(recipe, made)
        _goes_on_to_learn_nothing(recipe, made + 3)
    assert process_of(tmp_path / "run", "sampler").state == "found"


def _stopped_by_ctrl_c(recipe: Path) -> int:
    run = recipe.parent / "run"
    with started("run", str(recipe)) as process:
        wait(process, lambda: steps(run) >= 1, "a step")
        process.send_signal(signal.SIGINT)
        code, output = ended(process)
    assert code == 130, output
    assert "the same command goes on" in output
    record = course_of(run)
    assert record.ended is not None and record.ended.status == 130
    assert not any(alive(p.pid, p.created) for p in record.processes)
    assert list(run.glob("checkpoints/step-*"))
    return steps(run)


def _goes_on_though_the_engine_is_killed(recipe: Path, made: int) -> None:
    run = recipe.parent / "run"
    with started("run", str(recipe), "--steps", str(made + 3)) as process:
        wait(process, lambda: steps(run) > made, "a step more")
        engine = process_of(run, "engine")
        os.killpg(engine.pid, signal.SIGKILL)
        code, output = ended(process)
    assert code == 0, output
    assert "engine had ended and was started again" in output
    lines = output.splitlines()
    assert lines[-1] == str(run / "summary.json")
    assert f"policy:  {run / 'final'}" in lines
    assert (run / "report.html").is_file()
    assert (run / "final/config.json").is_file()
    # Each step was taken once, by whichever start.
    numbers = [json.loads(line)["step"] for line in (run / "learner.jsonl").open(encoding="utf-8")]
    assert numbers == list(range(1, made + 4))
    assert process_of(run, "engine").pid != engine.pid
    assert course_of(run).peak_memory > 100 << 20

    code, output = said("run", str(recipe), "--steps", str(made + 3))
    assert code == 0
    assert f"has done its {made + 3} steps" in output
    assert output.splitlines()[-1] == str(run / "summary.json")


def _goes_on_to_learn_nothing(recipe: Path, made: int) -> None:
    recipe.with_name("hopeless").touch()
    run = recipe.parent / "run"
    with started("run", str(recipe), "--steps", str(made + 30)) as process:
        code, output = ended(process)
    assert code == 4, output
    assert "signal" in output
    assert output.splitlines()[-1] == str(run / "summary.json")
    found = json.loads(said("status", str(run), "--json")[1])
    assert (found["word"], found["status"]) == ("failed", 4)


def test_a_killed_console_leaves_nothing_and_what_it_was_making_is_made_again(
    tmp_path: Path, policy: Path
) -> None:
    """Killed while a command of the recipe's writes; the same command moves the half aside."""
    (tmp_path / "make.py").write_text(
        "import pathlib, sys, time\n"
        "made = pathlib.Path(sys.argv[1])\n"
        "assert not made.exists()\n"
        "made.write_text('half')\n"
        "time.sleep(1000)\n",
        encoding="utf-8",
    )
    prepare = [{"name": "numbers", "run": ["python", "make.py", "{makes}"], "makes": "run/n.txt"}]
    recipe = write_own_run(tmp_path, policy, console={"prepare": prepare})
    run, made = tmp_path / "run", tmp_path / "run/n.txt"
    with started("run", str(recipe)) as first:
        wait(first, made.exists, "half a file")
        first.kill()
    assert said("status", str(run))[0] == 1
    (tmp_path / "make.py").write_text(
        "import pathlib, sys\npathlib.Path(sys.argv[1]).touch()\n", encoding="utf-8"
    )
    with started("run", str(recipe)) as second:
        wait(second, lambda: stage(run) == "learn", "the learner")
        assert (tmp_path / "run/n.txt.unfinished").read_text(encoding="utf-8") == "half"
        code, output = said("stop", str(run), "--now")
        assert code == 0, output
        code, output = ended(second)
    assert code == 143, output
    record = course_of(run)
    assert len(record.starts) == 2
    assert not any(alive(p.pid, p.created) for p in record.processes)


def test_a_run_whose_folder_is_removed_ends_with_one_sentence(tmp_path: Path, policy: Path) -> None:
    (tmp_path / "make.py").write_text(
        "import pathlib, sys, time\npathlib.Path(sys.argv[1]).touch()\ntime.sleep(1000)\n",
        encoding="utf-8",
    )
    prepare = [{"name": "numbers", "run": ["python", "make.py", "{makes}"], "makes": "run/n.txt"}]
    recipe = write_own_run(tmp_path, policy, console={"prepare": prepare})
    run = tmp_path / "run"
    with started("run", str(recipe)) as process:
        wait(process, (run / "n.txt").exists, "a file that a process makes")
        maker = process_of(run, "numbers")
        shutil.rmtree(run)
        code, output = ended(process)
    assert code == 1
    assert output.splitlines()[-1].startswith(f"toolwright: {run} was removed or replaced")
    assert not alive(maker.pid, maker.created)
    assert not run.exists()


def test_a_reward_that_is_not_there_is_the_engines_sentence_and_no_server_starts(
    tmp_path: Path, policy: Path
) -> None:
    recipe = write_own_run(tmp_path, policy, task={"reward": "./task.py:scroe"})
    code, output = said("run", str(recipe))
    assert code == 2
    assert output.splitlines()[-1].startswith("toolwright: ")
    assert "scroe" in output.splitlines()[-1]
    assert {p.name for p in course_of(tmp_path / "run").processes} == {"check"}


@pytest.mark.skipif(
    "agents" not in registered_tables(), reason="[agents] needs a new installation of this package"
)
def test_agents_of_a_recipe_start_and_end_with_the_run(tmp_path: Path, policy: Path) -> None:
    agent = {"kind": "command", "command": ["python", "agent.py"], "sandbox": "none", "at_once": 4}
    (tmp_path / "agent.py").write_text(ONE_CALL + "say('hello')\n", encoding="utf-8")
    recipe = write_own_run(tmp_path, policy, task={"agent": agent}, run={"steps": 2})
    with started("run", str(recipe)) as process:
        code, output = ended(process)
    assert code == 0, output
    run = tmp_path / "run"
    assert steps(run) == 2
    names = {one.name for one in course_of(run).processes}
    assert {"ingress", "agents"} <= names
    assert not any(alive(p.pid, p.created) for p in course_of(run).processes)
