"""Without any extra, every command says which one is missing, and helps all the same."""

from __future__ import annotations

import pytest

from tests.integration.packaging.conftest import Environment
from toolwright.process.command_line import extras_with, first_sentence, missing

pytestmark = pytest.mark.slow

COMMANDS = (
    "agents",
    "engine",
    "ingress",
    "learner",
    "toolsvc",
    "memory",
    "tasks",
    "bench",
    "toolwright",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_version_and_help_need_no_extra(bare: Environment, command: str) -> None:
    version = bare(command, "--version")
    assert (version.returncode, version.stdout) == (0, "toolwright 0.1.0\n"), version.stderr
    text = bare(command, "--help")
    assert text.returncode == 0, text.stderr
    assert f"Usage: {command} " in text.stdout
    assert "--install-completion" in text.stdout
    assert "..." not in text.stdout.replace("[ARGS]...", ""), "nothing is cut"


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (("engine", "serve", "recipe.toml"), "engine"),
        (("engine", "check", "recipe.toml"), "engine"),
        (("learner", "sft", "recipe.toml"), "learner"),
        (("toolsvc", "serve", "python"), "toolsvc"),
        (("memory", "serve", "--store", "redis://127.0.0.1:1"), "memory"),
        (("tasks", "make", "atlas", "world"), "atlas"),
        (("bench", "scripted-sampler", "--script", "cycle:1:5"), "bench"),
        (("toolwright", "run", "recipe.toml"), "console"),
        (("toolwright", "view", "--web", "."), "view"),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, tuple) else "",
)
def test_one_sentence_names_the_extra(
    bare: Environment, words: tuple[str, ...], extra: str
) -> None:
    assert bare("toolwright", "init", "starter", ".").returncode in (0, 2)
    done = bare(*words)
    assert done.returncode == 1
    (sentence,) = done.stderr.splitlines()
    assert f"pip install 'toolwright[{extra}]'" in sentence


def test_completion_is_offered(bare: Environment) -> None:
    shown = bare(
        "toolwright", "--show-completion", "bash", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1"
    )
    assert "_TOOLWRIGHT_COMPLETE" in shown.stdout
    words = {
        "_TOOLWRIGHT_COMPLETE": "complete_bash",
        "COMP_WORDS": "toolwright i",
        "COMP_CWORD": "1",
    }
    assert "init" in bare("toolwright", **words).stdout


def test_an_extra_is_found_by_the_name_that_is_imported() -> None:
    assert "image" in extras_with("pillow")
    assert missing("PIL.Image", "toolsvc").endswith("pip install 'toolwright[image]'")
    assert missing("aiohttp", "console").endswith("pip install 'toolwright[console]'")
    assert missing("aiohttp", "bench").endswith("pip install 'toolwright[bench]'")
    assert missing("no_such_package", "learner").endswith("pip install 'toolwright[learner]'")


def test_a_description_ends_with_its_first_sentence() -> None:
    assert first_sentence("Serve it.\n    Well.\n\nMore.") == "Serve it."
    assert first_sentence("Of N. steps, e.g. ten") == "Of N. steps, e.g. ten"
    assert first_sentence("") == ""
