"""The common part of `engine`, `learner`, `toolsvc`, `memory`, `tasks`, `bench` and `toolwright`.

Invariants
- `--help`, `--version` and shell completion need the core packages alone. Any other command that
  lacks a package ends with one sentence that names the extra, and exit code 1.
- Descriptions in `--help` are whole, at any width.

The modules of commands import packages of extras when a command runs, not when they are imported.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib import metadata
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from toolwright.process.own_packages import OURS, sentence_for

PACKAGE = "toolwright"
IMPORTED_AS = {
    "av": "av",
    "faiss": "faiss-cpu",
    "google": "protobuf",
    "lxml": "lxml-html-clean",
    "megatron": "megatron-core",
    "PIL": "pillow",
    "Stemmer": "pystemmer",
    "psycopg": "psycopg",
}
"""Packages that are imported by another name than the one they are installed by."""


_RUN = "`toolwright run RECIPE` trains, and the same command goes on with a run"
OTHER_WORDS = {
    "train": _RUN,
    "resume": _RUN,
    "continue": _RUN,
    "start": _RUN,
    "fit": _RUN,
    "evaluate": "`engine eval RECIPE` evaluates a policy",
    "rollouts": "`bench engine math sql deepsearch` measures rollouts without barriers",
}
"""Commands of other programs and of earlier versions, and the command that does the same here."""


class WholeDescriptions(TyperGroup):
    """Lists commands with the whole first sentence of their help; click cuts it at the width."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [
            (name, first_sentence(command.help or ""))
            for name, command in commands
            if command is not None and not command.hidden
        ]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Raises UsageError with a hint for a command name of other programs."""
        hint = OTHER_WORDS.get(args[0], "") if args and args[0] not in self.commands else ""
        if hint and ctx.parent is None:
            ctx.fail(f"No such command {args[0]!r}: {hint}")
        return super().resolve_command(ctx, args)


class WithDefault(WholeDescriptions):
    """A group with a command that need not be named: `engine eval FILE` is
    `engine eval run FILE`."""

    default = "run"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, "--help"):
            args = [self.default, *args]
        return super().parse_args(ctx, args)


def command_line(program: str, *, help: str, epilog: str | None = None) -> typer.Typer:
    """The Typer application of a program; commands are added to it."""
    app = typer.Typer(
        name=program,
        cls=WholeDescriptions,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        help=help,
        epilog=epilog,
    )

    @app.callback()
    def options(
        version: Annotated[
            bool,
            typer.Option("--version", callback=_version, is_eager=True, help="Show the version."),
        ] = False,
    ) -> None:
        """Options before a command."""

    return app


def start(app: typer.Typer, program: str, extra: str) -> None:
    """Runs the command line. extra: the one that holds most of what the program imports."""
    try:
        app(prog_name=program)
    except ImportError as error:
        if sentence := sentence_for(error):
            _end(f"{program}: {sentence}")
        ours = (error.name or "").partition(".")[0] in OURS
        if ours or not isinstance(error, ModuleNotFoundError):
            raise
        _end(f"{program}: {missing(error.name or '', extra)}")


def missing(module: str, extra: str) -> str:
    """The message for a missing package: its name, and the extra that installs it."""
    package = IMPORTED_AS.get(top := module.partition(".")[0], top)
    having = extras_with(package)
    chosen = extra if extra in having or not having else min(having, key=_size)
    return f"the package {package} is missing: pip install '{PACKAGE}[{chosen}]'"


def extras_with(package: str) -> list[str]:
    """The extras of this project that install a package, except `all` and `dev`."""
    wanted = _normal(package)
    return [
        extra
        for name, extra in _requirements()
        if name == wanted and extra not in ("", "all", "dev")
    ]


def _size(extra: str) -> int:
    """Number of packages that an extra adds."""
    return sum(1 for _, name in _requirements() if name == extra)


def first_sentence(text: str) -> str:
    """First sentence of a help text's first paragraph, with its lines joined."""
    paragraph = " ".join(text.strip().split("\n\n")[0].split())
    return re.split(r"(?<=[.:]) (?=[A-Z`])", paragraph, maxsplit=1)[0]


def _requirements() -> Iterator[tuple[str, str]]:
    """(package, extra) of each requirement; "" where every installation has it."""
    for line in metadata.requires(PACKAGE) or ():
        named = re.match(r"[\w.-]+", line)
        extra = re.search(r"extra == ['\"]([\w.-]+)['\"]", line)
        if named:
            yield _normal(named[0]), extra[1] if extra else ""


def _normal(name: str) -> str:
    """The name in the form in which package registries compare names."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _version(shown: bool) -> None:
    if shown:
        typer.echo(f"{PACKAGE} {metadata.version(PACKAGE)}")
        raise typer.Exit


def _end(sentence: str) -> NoReturn:
    print(sentence, file=sys.stderr)
    raise SystemExit(1)
