"""Tools are checked by a real `toolsvc serve create_and_execute`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from memory.checks.client import ToolServiceRunner
from memory.checks.runner import Run
from memory.errors import ChecksDown
from memory.graph.naming import under_name
from memory.types import Tool
from tests.integration.toolsvc.conftest import start_service
from tests.support.tool_memory import tool

pytestmark = pytest.mark.quick


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToolServiceRunner]:
    log = tmp_path_factory.mktemp("service") / "errors.log"
    words = ("create_and_execute", "--ready", "2", "--shards", "1", "--memory-mib", "192")
    service = start_service(log, *words)
    with contextlib.closing(ToolServiceRunner(service.address)) as made:
        yield made
    service.process.terminate()
    assert service.process.wait(20) == 0, log.read_text(encoding="utf-8")


def doing(name: str, body: str, *inputs: str) -> Tool:
    code = f"def {name}(x):\n    return {body}\n"
    return tool(name, "double a number", code=code, inputs=inputs)


DOUBLE = doing("double", "x * 2", '{"x": 9007199254740993}')


def test_outcomes_are_the_tools_own(runner: ToolServiceRunner) -> None:
    inputs = '{"x": 9007199254740993}'
    tools = [
        DOUBLE,
        under_name(DOUBLE, "double_1a2b3c"),
        doing("broken", "x / 0"),
        doing("ends", "__import__('os')._exit(0)"),
        doing("spoils", "{1, 2}"),
    ]
    whole, renamed, broken, ends, spoils = runner.run(
        [Run(tool=one, inputs=inputs) for one in tools]
    )
    assert whole.result == renamed.result == 18014398509481986 and not whole.error
    assert "ZeroDivisionError" in broken.error
    assert ends.error and "no JSON" in spoils.error


def test_a_service_that_is_away_is_no_outcome(tmp_path: Path) -> None:
    nobody = ToolServiceRunner(f"unix:{tmp_path / 'nobody'}")
    with pytest.raises(ChecksDown, match="UNAVAILABLE"):
        nobody.run([Run(tool=DOUBLE, inputs="{}")])
    nobody.close()
