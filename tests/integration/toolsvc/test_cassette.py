"""A service in a process of its own, one that stands before it and records, one that replays."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.toolsvc.conftest import Service, running_service
from tests.support.checking import OF_CALLS, PLUGIN, PROBES, keeps_the_contract
from toolsvc.check.checks import ALL

pytestmark = pytest.mark.slow

CALL = [sys.executable, "-c", "from toolsvc.cli import main; main()", "call"]

LOOKUP = """
import random
from toolsvc import Media, Result, tool


@tool(media=True)
def lookup(word: str, times: int) -> Result:
    "Answers otherwise every time."
    size = 300_000 if word == "large" else 100
    picture = Media(media_type="image/png", data=random.randbytes(size))
    return Result.of(word * times, str(random.random()), picture, reward=random.random())
"""


def call(address: str, arguments: str, *more: str) -> str:
    done = subprocess.run(
        [*CALL, address, "lookup", "--json", "--arguments", arguments, *more],
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.stdout or done.stderr


ONE_BY_ONE = (check for check in ALL if check.name != "histories-are-as-the-contract-says")
RECORDED = [word for check in ONE_BY_ONE for word in ("--only", check.name)]
"""All checks but the one whose calls depend on how fast the machine is."""


@pytest.fixture
def real(tmp_path: Path) -> Iterator[Service]:
    (tmp_path / "lookup.py").write_text(LOOKUP, encoding="utf-8")
    with running_service(tmp_path / "real.log", str(tmp_path / "lookup.py")) as running:
        yield running


def observed(told: str) -> str:
    """What a call came to, without its times and the hash of where its media are fetched."""
    return told.partition('"queued"')[0]


def test_a_recorded_service_is_replayed_without_it(
    real: Service, start: Callable[..., Service], tmp_path: Path
) -> None:
    tape = tmp_path / "tape.jsonl"
    recorder = start(f"cassette:{tape}", "--set", f'cassette.record=["grpc:{real.address}"]')
    words = ('{"word": "one", "times": 2}', '{"word": "large", "times": 1}', '{"word": 1}')
    recorded = [observed(call(recorder.address, one)) for one in words]
    keeps_the_contract(recorder.address, *RECORDED, folder=tmp_path)
    for service in (recorder, real):
        service.process.terminate()
        service.process.wait(20)
    player = start(f"cassette:{tape}")
    assert [observed(call(player.address, one)) for one in words] == recorded
    assert "has no answer to call 0" in call(player.address, '{"word": "two", "times": 2}')
    keeps_the_contract(player.address, *RECORDED, folder=tmp_path, least=40)


def test_a_service_before_a_service_keeps_the_contract(
    start: Callable[..., Service], tmp_path: Path
) -> None:
    (tmp_path / "plugin.py").write_text(PLUGIN, encoding="utf-8")
    behind = start(str(tmp_path / "plugin.py"))
    before = start(f"grpc:{behind.address}")
    # What the service answers whatever its tools are is asked with the first.
    for tool, only, least in (("tally", (), 95), ("picture", OF_CALLS, 25)):
        words = (*only, "--tool", tool)
        keeps_the_contract(before.address, *words, folder=tmp_path, least=least, probes=PROBES)
