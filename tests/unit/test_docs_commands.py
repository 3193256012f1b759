"""Commands that the docs show exist, with the options that they show; so do the files they name."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.docs_names import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "recipes").glob("**/*.md")),
    *sorted((ROOT / "deploy").rglob("*.md")),
]
TARGETS = set(
    re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
)
PROMPT = r"(?:\$ |\.venv/bin/)(?=(?:bench|engine|learner|memory|tasks|toolsvc|toolwright) )"
TYPED = re.compile(rf"\s*(?:[A-Z_]+=\S+ )*(?:{PROMPT}|(?=(?:toolwright|make) ))(.*)")
"""A line that is typed: after a prompt, with the checkout's path, or with a word of no output."""
OF_THE_CHECKOUT = re.compile(r"(recipes|deploy|examples|constraints)/[\w./-]+")


def shown(page: Path) -> Iterator[list[str]]:
    """The words of each command line in the page's blocks."""
    for language, block in re.findall(
        r"```(\w*)\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL
    ):
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
        if rest[0] not in command.commands and (default := getattr(command, "default", "")):
            rest.insert(0, default)
        assert rest[0] in command.commands, f"{rest[0]}: no such command"
        command = command.commands[rest.pop(0)]
    known = {option for p in command.params for option in (*p.opts, *p.secondary_opts)}
    own = rest[: rest.index("--")] if "--" in rest else rest
    options = {word.partition("=")[0] for word in own if re.match(r"--?[a-z]", word)}
    assert options <= known | {"--help"}


def test_the_docs_show_commands() -> None:
    assert len(LINES) > 80
