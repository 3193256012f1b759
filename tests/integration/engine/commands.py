"""Commands of the engine in the test's process, and the services that they find beside it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from bench.scripted import ScriptedSampler, replies
from engine.cli import app
from tests.support.net import free_port
from tests.support.recipes import merged, recipe_tables, write_recipe
from tests.support.tools import ToolDouble, serving


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Addresses of a sampler and a tool service that are up."""

    sampler: str
    tools: str


@pytest.fixture(scope="module")
def services() -> Iterator[Services]:
    """Both run in a thread beside the tests."""
    found: list[Services] = []
    up, down = threading.Event(), threading.Event()

    async def serve() -> None:
        async with AsyncExitStack() as stack:
            sampler = ScriptedSampler(script=replies([[1, 2]]))
            await stack.enter_async_context(sampler)
            double = await stack.enter_async_context(serving(ToolDouble()))
            found.append(Services(sampler=sampler.url, tools=double.address))
            up.set()
            await asyncio.to_thread(down.wait)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert up.wait(20)
    yield found[0]
    down.set()
    thread.join(20)


@dataclass(slots=True, kw_only=True)
class Command:
    """Runs commands on one recipe with changes."""

    folder: Path
    tables: dict[str, Any]

    def __call__(self, command: str, *options: str, **changes: Any) -> Result:
        file = write_recipe(self.folder, merged(self.tables, changes))
        return CliRunner().invoke(app, [command, str(file), *options])

    def says(self, *options: str, **changes: Any) -> str:
        """What `engine check` prints of a recipe in order."""
        result = self("check", *options, **changes)
        assert result.exit_code == 0, result.output
        return result.stdout


@pytest.fixture
def run(tmp_path: Path, policy_folder: Path, services: Services) -> Command:
    tables = recipe_tables(
        policy=policy_folder,
        sampler=services.sampler,
        tools={"python": services.tools},
        engine=f"127.0.0.1:{free_port()}",
    )
    return Command(folder=tmp_path, tables=tables)


def sentence(result: Result) -> str:
    """The one line that a failed command says."""
    assert result.exit_code == 1, result.output
    assert isinstance(result.exception, SystemExit), result.exception
    (line,) = [
        text
        for text in result.stderr.splitlines()
        if not text.startswith(("[", "engine serves", "warning:")) and "done before" not in text
    ]
    assert line.startswith("engine: ")
    assert "Traceback" not in result.output
    return line
