"""A subject's files are there, and its recipe asks the suites that the report compares."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.demo.commands import Commands
from bench.demo.subject import CALCULATOR, Subject
from bench.real.subject import arithmetic
from toolwright.recipe import load_recipe

MODEL = Path("/models/policy")
SUBJECTS = [CALCULATOR, arithmetic(MODEL)]


def suites(subject: Subject) -> dict[str, Any]:
    found = load_recipe(subject.recipe).raw["engine"]["evaluation"]["suites"]
    return {suite["name"]: suite for suite in found}


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda one: one.name)
def test_what_is_compared_is_asked_before_and_after(subject: Subject) -> None:
    found = suites(subject)
    for suite in subject.suites:
        for how, temperature in (("sampled", 1.0), ("greedy", 0.0)):
            asked = found[f"{suite.name}-{how}"]
            assert asked["when"] == "ends"
            assert asked["temperature"] == temperature
    assert "curve-sampled" in found


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda one: one.name)
def test_its_files_are_there(subject: Subject) -> None:
    assert (subject.example / "task.py").is_file()
    assert (subject.example / "demonstrations.py").is_file()
    assert (subject.example / "policy.py").is_file() == (subject.model is None)
    assert (subject.example / "README.md").is_file()


def test_the_headline_of_the_pretrained_model_is_about_what_it_never_saw() -> None:
    subject = arithmetic(MODEL)
    found = suites(subject)
    assert subject.main.name == "unseen-wordings"
    assert found["unseen-wordings-sampled"]["source"].endswith("task.py:unseen_wordings")
    assert found["heldout-sampled"]["source"].endswith("task.py:heldout")


def test_sampler_and_learner_get_the_subjects_threads() -> None:
    commands = Commands(subject=arithmetic(MODEL))
    for command in (commands.sampler(MODEL, 1), commands.sft("s", {}), commands.learner("l", {})):
        assert command.environment["OMP_NUM_THREADS"] == "2"
    assert commands.sampler(MODEL, 1).environment["TOOLWRIGHT_SAMPLER_THREADS"] == "2"
    assert commands.engine("e", {}).environment["OMP_NUM_THREADS"] == "1"
    assert Commands(subject=CALCULATOR).learner("l", {}).environment["OMP_NUM_THREADS"] == "1"


def test_a_sampler_on_a_gpu_is_another_interpreters() -> None:
    on_gpu = Commands(subject=arithmetic(MODEL), gpu_sampler=Path("/gpu/bin/python"))
    argv = on_gpu.sampler(MODEL, 30000).argv
    assert argv[:3] == ("/gpu/bin/python", "-m", "sglang.launch_server")
    assert "--incremental-streaming-output" in argv
    assert "127.0.0.1" in argv
    assert argv[-1] == "--skip-tokenizer-init"
