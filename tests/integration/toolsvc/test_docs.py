"""The tutorial of docs/tools/your-own.md, word for word: served, and called by its own commands."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.support.tutorial import ADDRESS, CHECK, EXAMPLES, SERVED
from tests.support.walkthrough import fits
from toolsvc.cli import app

pytestmark = pytest.mark.slow


def test_the_tutorial_s_commands_print_what_it_shows(
    start: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("front.jpg").write_bytes(bytes(20_113))
    Path("back.png").write_bytes(bytes(18_324))
    files = []
    for example in EXAMPLES:
        path = tmp_path / example.file
        path.write_text(example.code, encoding="utf-8")
        files.append(str(path))
    assert [" ".join(example.file for example in EXAMPLES)] == SERVED
    address = start(*files).address
    for example in EXAMPLES:
        for words, output in example.commands:
            assert ADDRESS in words
            called = CliRunner().invoke(app, [address if w == ADDRESS else w for w in words])
            assert called.exit_code == 0, called.output
            assert called.stdout == output
    words, output = CHECK
    called = CliRunner().invoke(app, [address if w == ADDRESS else w for w in words])
    assert called.exit_code == 0, called.output
    assert fits(output.replace(ADDRESS, address), called.stdout), called.stdout
