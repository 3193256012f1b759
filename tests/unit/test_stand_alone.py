"""The conformance suite and the scripted sampler serve other test-suites without the rest."""

import subprocess
import sys

import pytest

from toolwright.process.own_packages import OURS

pytestmark = pytest.mark.quick

HEAVY = {"torch", "megatron", "transformers", "pyarrow", "faiss", "uvloop"}
SUITE = """
import asyncio
from toolsvc.check import NoService, check_service
try:
    asyncio.run(check_service("127.0.0.1:9"))
except NoService:
    pass
"""
SAMPLER = """
import asyncio
from bench.scripted import ScriptedSampler, replies
async def main():
    async with ScriptedSampler(script=replies([[5]])) as sampler:
        assert sampler.url
asyncio.run(main())
"""
COMMAND = "import bench.scripted_sampler, bench.history.sampler_log"


def imported_by(code: str) -> set[str]:
    """Names of all modules that are loaded after `code`."""
    show = "import sys; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{show}"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("code", "packages"),
    [
        (SUITE, {"toolsvc", "toolwright"}),
        (SAMPLER, {"bench", "toolwright"}),
        (COMMAND, {"bench", "toolwright"}),
    ],
    ids=["suite", "sampler", "command"],
)
def test_a_part_imports_nothing_of_the_rest(code: str, packages: set[str]) -> None:
    modules = imported_by(code)
    tops = {module.partition(".")[0] for module in modules}
    assert tops & {*OURS} == packages
    assert tops & HEAVY == set()
    if "toolsvc" in packages:
        others = {one for one in modules if one.startswith("toolsvc.")}
        assert {one for one in others if not one.startswith("toolsvc.check")} == set()


def test_the_check_command_names_the_package_that_it_lacks() -> None:
    code = "import sys; sys.modules['hypothesis'] = None; from toolsvc.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "check", "127.0.0.1:9"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert "pip install 'toolwright[toolsvc]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1
