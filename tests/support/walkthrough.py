"""A page of the docs that is done word for word: its files are written, its commands typed in one
shell, and what they print is compared with what the page shows.

A file is a block behind a line that is its name and a colon: `tool.py`:
Commands stand in blocks without a language, behind "$ "; what follows up to the next one is what
they print. There `...` stands for anything within a line, and for any lines where it is a line of
its own; how many spaces stand between two words does not count. A command that is to fail is
followed by `$ echo $?`. One that ends with `&` goes on behind the others, as in any shell; the next
one is typed when it has printed what the page shows of it.

Ports are the one thing that is changed: each of the page's stands for one that is free here.
"""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

import psutil

from tests.support.docs import DOCS
from tests.support.net import free_port
from tests.support.waiting import blocks

PATIENCE = 180.0
"""Seconds for what takes ten on an idle machine."""
_BLOCK = re.compile(
    r"(?:^`(?P<file>[\w./-]+)`:\n\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S
)
_PORT = re.compile(r"(?:(?<=127\.0\.0\.1:)|(?<=-port )|(?<=_port = ))[1-9]\d{3,4}\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Typed:
    """A command, and what the page shows of its output."""

    line: str
    shown: str

    @property
    def goes_on(self) -> bool:
        return self.line.endswith("&")


@dataclass(frozen=True, slots=True, kw_only=True)
class Walkthrough:
    """What a page has: texts by the file's name, and commands in their order."""

    files: dict[str, str]
    commands: tuple[Typed, ...]


def read_walkthrough(page: str) -> Walkthrough:
    """Of docs/PAGE. AssertionError where a block is neither file nor commands, and where a file
    comes twice: nothing on such a page goes untried."""
    files: dict[str, str] = {}
    commands: list[Typed] = []
    for block in _BLOCK.finditer((DOCS / page).read_text(encoding="utf-8")):
        name, text = block["file"], block["text"]
        if name:
            assert name not in files, f"{page} has {name} twice"
            files[name] = text
            continue
        assert text.startswith("$ ") and not block["language"], f"{page}: what is {text[:60]!r}?"
        for typed in re.split(r"^\$ ", text, flags=re.M)[1:]:
            line, shown = re.fullmatch(r"((?:.*\\\n)*.*)\n((?:.*\n)*)", typed).groups()  # type: ignore[union-attr]
            commands.append(Typed(line=line.rstrip(), shown=shown))
    return Walkthrough(files=files, commands=tuple(commands))


def do(walkthrough: Walkthrough, folder: Path) -> None:
    """Writes the files into the folder and types the commands there. AssertionError for one that
    fails or prints something else."""
    ports: dict[str, str] = {}
    outputs = Path(mkdtemp(prefix="said-", dir=folder.parent))

    def here(text: str) -> str:
        return _PORT.sub(lambda port: ports.setdefault(port[0], str(free_port())), text)

    for name, text in walkthrough.files.items():
        (folder / name).write_text(here(text), encoding="utf-8")
    with _shell(folder) as shell:
        for number, command in enumerate(walkthrough.commands):
            line, shown = here(command.line), here(command.shown)
            output = outputs / str(number)
            if command.goes_on:
                shell.put(f"{line.removesuffix('&')} </dev/null >{output} 2>&1 &")
                _until_fits(shown, output, line)
                continue
            status = shell.type(f"{{ {line}\n}} </dev/null >{output} 2>&1", line)
            said = output.read_text(encoding="utf-8")
            assert fits(shown, said), f"$ {line}\n{said}\nis not as on the page:\n{shown}"
            following = walkthrough.commands[number + 1 : number + 2]
            told = following and following[0].line == "echo $?"
            assert status == 0 or told, f"$ {line}\n{said}\nended with {status}"


def fits(shown: str, said: str) -> bool:
    """Whether what was said is what is shown, with its dots."""
    pattern = ""
    for line in _plain(shown).splitlines():
        words = re.escape(line).replace(re.escape("..."), ".*?")
        pattern += r"(?:.*\n)*?" if line == "..." else rf"{words}\n"
    return re.fullmatch(pattern, _plain(said)) is not None


def _plain(text: str) -> str:
    return "".join(f"{re.sub(' +', ' ', line).rstrip()}\n" for line in text.splitlines())


def _until_fits(shown: str, output: Path, line: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not (output.exists() and fits(shown, output.read_text(encoding="utf-8"))):
        said = output.read_text(encoding="utf-8") if output.exists() else ""
        assert time.monotonic() < deadline, f"$ {line}\n{said}\nis not as on the page:\n{shown}"
        blocks(0.05, "a command that goes on says what the page shows")


class _Shell:
    """bash, with jobs; what is typed has its output elsewhere."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def put(self, text: str) -> None:
        self._process.stdin.write(f"{text}\n".encode())

    def type(self, text: str, line: str) -> int:
        """The exit status, which is `$?` for what is typed next."""
        self.put(f"{text}\n(status=$?; echo $status; exit $status)")
        assert self._process.stdout is not None
        answer = b""
        deadline = time.monotonic() + PATIENCE
        while not answer.endswith(b"\n"):
            left = deadline - time.monotonic()
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, left))
            assert ready, f"$ {line}: no end after {PATIENCE:g} s"
            piece = os.read(self._process.stdout.fileno(), 100)
            assert piece, f"$ {line}: it ended the shell"
            answer += piece
        return int(answer)


@contextmanager
def _shell(folder: Path) -> Iterator[_Shell]:
    """One in the folder, with this installation's programs; whatever is left of it is killed."""
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    process = subprocess.Popen(
        ["bash", "--noprofile", "--norc"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
        cwd=folder,
        env={**os.environ, "PATH": programs, "OMP_NUM_THREADS": "1", "COLUMNS": "110"},
        start_new_session=True,
    )
    try:
        shell = _Shell(process)
        shell.put("set -m")
        yield shell
    finally:
        bash = psutil.Process(process.pid)
        for one in [*bash.children(recursive=True), bash]:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        process.communicate()
