"""Commands that the docs show exist, with the options that they show; so do the files they name."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from bench.cli import app as bench
from console.cli import app as toolwright
from engine.cli import app as engine
from learner.cli import app as learner
from memory.cli import app as memory
from tasks.cli import app as tasks
from toolsvc.cli import app as toolsvc

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "recipes").glob("**/*.md")),
    *sorted((ROOT / "deploy").rglob("*.md")),
]
COMMANDS: dict[str, Any] = {
    "bench": typer.main.get_command(bench),
    "engine": typer.main.get_command(engine),
    "learner": typer.main.get_command(learner),
    "memory": typer.main.get_command(memory),
    "tasks": typer.main.get_command(tasks),
    "toolsvc": typer.main.get_command(toolsvc),
    "toolwright": typer.main.get_command(toolwright),
}
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
PROMPT = r"(?:\$ |\.venv/bin/)(?=(?:bench|engine|learner|memory|tasks|toolsvc|toolwright) )"
TYPED = re.compile(rf"\s*(?:[A-Z_]+=\S+ )*(?:{PROMPT}|(?=(?:toolwright|make) ))(.*)")
"""A line that is typed: after a prompt, with the checkout's path, or with a word of no output."""
OF_THE_CHECKOUT = re.compile(r"(recipes|deploy|examples|constraints)/[\w./-]+")


def shown(page: Path) -> Iterator[list[str]]:
    """The words of each command line in the page's blocks."""
    for language, block in re.findall(r"```(\w*)\n(.*?)```", page.read_text(), re.DOTALL):
        if language not in ("", "bash", "sh", "console"):
            continue
        for line in block.replace("\\\n", " ").splitlines():
            if typed := TYPED.match(line):
                yield shlex.split(typed[1].partition(" | ")[0].rstrip("& "), comments=True)


LINES = [(page, words) for page in PAGES for words in shown(page)]


@pytest.mark.parametrize(
    ("page", "words"), LINES, ids=[f"{p.name}: {' '.join(w)[:60]}" for p, w in LINES]
)
def test_a_command_of_the_docs_can_be_typed(page: Path, words: list[str]) -> None:
    name, *rest = words
    for path in filter(OF_THE_CHECKOUT.fullmatch, words):
        if "run" not in Path(path).parts:  # what a run leaves
            assert (ROOT / path).exists(), path
    if name == "make":
        assert {word for word in rest if "=" not in word} <= TARGETS
        return
    command = COMMANDS[name]
    while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
        assert rest[0] in command.commands, f"{rest[0]}: no such command"
        command = command.commands[rest.pop(0)]
    known = {option for p in command.params for option in (*p.opts, *p.secondary_opts)}
    own = rest[: rest.index("--")] if "--" in rest else rest
    options = {word.partition("=")[0] for word in own if re.match(r"--?[a-z]", word)}
    assert options <= known | {"--help"}


def test_the_docs_show_commands() -> None:
    assert len(LINES) > 80
