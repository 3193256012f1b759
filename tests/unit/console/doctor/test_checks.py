"""What each check makes of a machine, an installation, a run folder and a server's answers."""

from __future__ import annotations

import json
import math
import os
import resource
import socket
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psutil
import pytest

from console.asked.setup import Options, Setup, set_up
from console.doctor import installation, machine
from console.doctor import recipe as recipe_checks
from console.doctor.types import Finding, Level, Patient
from console.machine.pids import pid_space
from console.machine.processes import created
from console.machine.ready import free_ports
from console.record.course import Began, CourseLog
from tests.support.recipes import merged, to_toml

TESTED_SGLANG = "0.5.23"
GOOD = {"version": TESTED_SGLANG, "incremental_streaming_output": True, "max_req_input_len": 32768}


@pytest.fixture
def patient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Patient:
    monkeypatch.chdir(tmp_path)
    return Patient(environment={})


def test_a_machine_in_order_has_no_fix_to_offer(patient: Patient) -> None:
    for look in (installation.python, machine.text, machine.network, machine.clock):
        assert worst(look(patient)) is Level.OK, look


def test_a_disk_is_measured_and_left_as_it_was(patient: Patient, tmp_path: Path) -> None:
    (found,) = machine.disk(patient)
    assert "MiB/s" in found.sentence
    assert str(tmp_path) in found.sentence
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_takes_no_file_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/proc/self/task")  # root may write everywhere but here
    found = list(machine.disk(Patient(environment={})))
    assert worst(found) is Level.PROBLEM
    assert "cannot be written" in found[-1].sentence
    assert "run.folder" in found[-1].fix


@pytest.mark.parametrize(
    ("environment", "level"),
    [
        ({"ALL_PROXY": "http://p:3128", "no_proxy": "example.org"}, Level.WARNING),
        ({"http_proxy": "http://p:3128", "no_proxy": "localhost, 127.0.0.1"}, Level.OK),
        ({"http_proxy": "http://p:3128", "NO_PROXY": "*"}, Level.OK),
    ],
)
def test_a_proxy_that_catches_loopback(environment: dict[str, str], level: Level) -> None:
    found = list(machine.network(Patient(environment=environment)))
    assert worst(found) is level
    assert not any("3128" in one.sentence for one in found)


@pytest.mark.parametrize(("threads", "level"), [("1", Level.OK), ("100000", Level.WARNING)])
def test_threads_of_the_environment(threads: str, level: Level) -> None:
    environment = {"OMP_NUM_THREADS": threads}
    assert worst(machine.cores(Patient(environment=environment))) is level


def test_few_open_files(patient: Patient) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1000, before[1]))
    try:
        (found,) = machine.limits(patient)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert found.level is Level.WARNING
    assert found.fix.startswith("ulimit -n ")


def test_what_a_run_makes_first_is_no_problem_and_what_nobody_makes_is(tmp_path: Path) -> None:
    recipe = write(tmp_path, policy={"model": "made"})
    (found,) = recipe_checks.recipe(of(recipe))
    assert found.level is Level.PROBLEM
    assert "policy.model" in found.sentence
    made = {"prepare": [{"name": "policy", "run": ["python", "p.py"], "makes": "made"}]}
    recipe = write(tmp_path, policy={"model": "made"}, console=made)
    (found,) = recipe_checks.recipe(of(recipe))
    assert found.level is Level.PROBLEM
    assert "r.py" in found.sentence  # the reward is looked into all the same
    (tmp_path / "r.py").write_text("def score(t):\n    return 1.0\n", encoding="utf-8")
    *_, later, fine = recipe_checks.recipe(of(recipe))
    assert later.level is Level.WARNING
    assert later.sentence.startswith("not looked into yet: tokenizer")
    assert "makes it by [[console.prepare]] 'policy'" in later.sentence
    assert fine.level is Level.OK
    assert "the rest in order" in fine.sentence


TOOL = """
from toolsvc import tool

@tool
def look(name: str) -> str:
    \"\"\"Looks.\"\"\"
    return name
"""


def test_a_tool_that_the_engine_starts_is_started_once(tmp_path: Path) -> None:
    (tmp_path / "tool.py").write_text(TOOL, encoding="utf-8")
    (tmp_path / "torn.py").write_text(TOOL + "def x(:", encoding="utf-8")
    tools = {"good": {"serve": ["tool.py"]}, "torn": {"serve": ["torn.py"]}}
    good, torn = recipe_checks.tools(of(write(tmp_path, tools=tools)))
    assert (good.level, torn.level) == (Level.OK, Level.PROBLEM)
    assert good.sentence == "tools.good: `toolsvc serve tool.py` starts"
    assert "torn.py cannot be imported: SyntaxError" in torn.sentence
    assert not (tmp_path / "run").exists()


def test_a_tool_that_asks_the_recipes_memory_waits_for_it(tmp_path: Path) -> None:
    """Which is not there before the run; of another memory's address it is tried."""
    asks = {"serve": ["memory:${memory.address}"]}
    tables = {"tools": {"market": asks}, "memory": {"address": "127.0.0.1:0"}}
    (found,) = recipe_checks.tools(of(write(tmp_path, **tables)))
    assert found.level is Level.OK
    assert "`toolwright run` starts first" in found.sentence
    elsewhere = {"tools": {"market": {"serve": ["memory:127.0.0.1:1"]}}}
    (found,) = recipe_checks.tools(of(write(tmp_path, **elsewhere)))
    assert found.level is Level.PROBLEM


@pytest.mark.parametrize(
    ("model", "server", "level", "words"),
    [
        ({}, {}, Level.OK, "default"),
        ({}, {"version": "0.4.1"}, Level.WARNING, "SGLang 0.4.1, tested is 0.5.23"),
        ({}, {"max_req_input_len": 100}, Level.PROBLEM, "takes 100 tokens"),
        ({}, {"incremental_streaming_output": False}, Level.WARNING, "repeats"),
        ({}, {"skip_tokenizer_init": True}, Level.OK, "answers"),
        ({"weight_version": "8e7ab990-4"}, {}, Level.WARNING, "another run"),
        ({"weight_version": "0a0b0c0d-2"}, {}, Level.OK, "answers"),
        ({"model_path": "other"}, {}, Level.PROBLEM, "shape is not that of policy.model"),
        ({"model_path": "policy"}, {}, Level.OK, ""),
        ({"model_path": "/not/here"}, {}, Level.OK, ""),
    ],
)
def test_what_a_samplers_answers_mean(
    tmp_path: Path, model: dict[str, str], server: dict[str, Any], level: Level, words: str
) -> None:
    recipe = write(tmp_path).recipe
    write_weights(tmp_path / "other/model.safetensors", {"w": [3]})
    (tmp_path / "run/policy/0a0b0c0d-1").mkdir(parents=True)
    if "model_path" in model:
        model = {"model_path": str(tmp_path / model["model_path"])}
    found = list(recipe_checks.judge(recipe, "http://127.0.0.1:30000", model, {**GOOD, **server}))
    assert worst(found) is level
    assert words == "default" or any(words in one.sentence for one in found)


OWN = {"name": "sampler", "run": ["s"], "ready": "http://127.0.0.1:0/"}


@pytest.mark.parametrize(
    ("console", "level"),
    [
        ({}, Level.OK),
        ({"sampler": {"way": "none"}}, Level.PROBLEM),
        ({"sampler": {"way": "none"}, "services": [OWN]}, Level.OK),
    ],
)
def test_a_sampler_that_is_not_there_is_a_problem_where_nobody_starts_it(
    tmp_path: Path, console: dict[str, Any], level: Level
) -> None:
    port = 0 if "services" in console else free_ports(1)[0]
    endpoints = [f"http://127.0.0.1:{port}"]
    recipe = write(tmp_path, sampler={"endpoints": endpoints}, console=console)
    found = [one for one in recipe_checks.servers(of(recipe)) if one.subject != "engine's port"]
    assert worst(found) is level
    assert ("no server answers" in found[0].sentence) == (level is Level.PROBLEM)


def test_a_run_folder_tells_who_works_there_and_what_a_start_goes_on_from(tmp_path: Path) -> None:
    setup, run = write(tmp_path), tmp_path / "run"
    (found,) = recipe_checks.run_folder(of(setup))
    assert found.sentence.endswith("has no run yet and can be written")
    (run / "checkpoints").mkdir(parents=True)
    (run / "checkpoints/latest").write_text("step-7-abc\n", encoding="utf-8")
    with CourseLog(run) as course:
        course.began(
            Began(
                at=0.0,
                pid=os.getpid(),
                created=created(os.getpid()),
                argv=[],
                recipe="r",
                overrides=[],
                host=socket.gethostname(),
                space=pid_space(),
            )
        )
        at_work, last = recipe_checks.run_folder(of(setup))
        assert f"process {os.getpid()}" in at_work.sentence
        assert at_work.fix == f"toolwright status {run} shows it; toolwright stop {run} ends it"
        assert last.sentence.endswith("a start goes on from step-7-abc")
        course.ended(0, "done")
    (found,) = recipe_checks.run_folder(of(setup))
    assert found.level is Level.OK


def write(folder: Path, **changes: Any) -> Setup:
    """A recipe beside a policy of one tensor."""
    write_weights(folder / "policy/model.safetensors", {"w": [2]})
    (folder / "q.jsonl").write_text('{"prompt": "1?", "answer": "1"}\n', encoding="utf-8")
    tables: dict[str, Any] = {
        "run": {"name": "r", "folder": "run", "steps": 1, "groups_per_step": 1, "group_size": 2},
        "policy": {"model": "policy"},
        "task": {"source": "q.jsonl", "reward": "./r.py:score"},
        "sampler": {"endpoints": ["http://127.0.0.1:0"]},
    }
    file = folder / "recipe.toml"
    file.write_text(to_toml(merged(tables, changes)), encoding="utf-8")
    return set_up(Options(recipe=file))


def of(setup: Setup) -> Patient:
    return Patient(environment={}, setup=setup)


def write_weights(file: Path, shapes: dict[str, list[int]]) -> None:
    """Headers alone: nobody reads the weights."""
    file.parent.mkdir(parents=True, exist_ok=True)
    (file.parent / "config.json").write_text("{}", encoding="utf-8")
    tensors = {
        name: {"dtype": "F32", "shape": shape, "data_offsets": [0, 4 * math.prod(shape)]}
        for name, shape in shapes.items()
    }
    header = json.dumps(tensors).encode()
    file.write_bytes(struct.pack("<Q", len(header)) + header)


def worst(found: Iterable[Finding]) -> Level:
    return max((one.level for one in found), key=list(Level).index, default=Level.OK)


def test_little_memory(patient: Patient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "LEAST_MEMORY", psutil.virtual_memory().total * 2)
    assert worst(machine.memory(patient)) is Level.WARNING


def test_a_package_that_is_missing_names_its_extra(
    patient: Patient, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = installation.version_of
    monkeypatch.setattr(installation, "version_of", lambda n: "" if n == "aiohttp" else real(n))
    fixes = {one.fix for one in installation.packages(patient)}
    assert {"pip install 'toolwright[engine]'", "pip install 'toolwright[console]'"} <= fixes


def test_versions_beside_the_tested_ones_are_said(
    patient: Patient, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = installation.version_of
    monkeypatch.setattr(installation, "version_of", lambda n: "0.0.1" if n == "grpcio" else real(n))
    found = [one for one in installation.packages(patient) if "grpcio 0.0.1" in one.sentence]
    assert found[0].level is Level.WARNING


def test_pins_are_those_of_this_python(tmp_path: Path) -> None:
    file = tmp_path / "pins.txt"
    lines = ("one==1; python_version < '3.3'", "one==2; python_version >= '3.3'", "two==3  # both")
    file.write_text("\n".join(lines), encoding="utf-8")
    assert installation.pins(file) == {"one": "2", "two": "3"}


def test_a_run_folder_that_is_a_file_is_a_problem(tmp_path: Path) -> None:
    recipe = write(tmp_path)
    (tmp_path / "run").write_text("", encoding="utf-8")
    assert worst(recipe_checks.run_folder(of(recipe))) is Level.PROBLEM
