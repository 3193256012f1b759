"""A command costs its own imports, and `--help` shows every command that there is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from toolwright.commands import commands_of

GREET = """
import typer

def greet(name: str = "you") -> None:
    "Greet somebody."
    print(f"hello {name}")

below = typer.Typer(help="More of it.")

@below.callback()
def _commands() -> None: ...

@below.command()
def deeper() -> None:
    print("deep")
"""


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> typer.Typer:
    """Two commands of one module, and one whose module must not be imported for them."""
    (tmp_path / "greetings_of_a_test.py").write_text(GREET)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "greetings_of_a_test", raising=False)
    places = {
        "greet": "greetings_of_a_test:greet",
        "more": "greetings_of_a_test:below",
        "broken": "no_module_of_this_name:main",
    }
    made = typer.Typer(cls=commands_of(places), no_args_is_help=True, add_completion=False)
    made.callback()(lambda: None)
    return made


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["greet"], "hello you\n"),
        (["greet", "--name", "me"], "hello me\n"),
        (["more", "deeper"], "deep\n"),
    ],
)
def test_a_command_runs_without_the_imports_of_others(
    app: typer.Typer, words: list[str], said: str
) -> None:
    done = CliRunner().invoke(app, words)
    assert (done.output, done.exit_code) == (said, 0)


def test_the_help_imports_all(app: typer.Typer) -> None:
    with pytest.raises(ModuleNotFoundError, match="no_module_of_this_name"):
        CliRunner().invoke(app, ["--help"], catch_exceptions=False)


def test_a_name_that_was_mistyped_is_told_the_nearest(app: typer.Typer) -> None:
    done = CliRunner().invoke(app, ["gret"])
    assert done.exit_code == 2
    assert "greet" in done.output
