"""`toolsvc serve browser` as people run it: the contract, and its sudden death."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.integration.toolsvc.conftest import Service
from tests.support.checking import keeps_the_contract
from tests.support.site import site

pytestmark = pytest.mark.slow

CHECKS = (
    "isolation-is-told",
    "a-failure-is-an-answer",
    "a-repetition-has-no-effect",
    "a-retry-joins-the-call-in-flight",
    "past-the-run-limit-it-is-a-timeout",
    "state-lives-from-call-to-call",
    "sessions-see-nothing-of-each-other",
    "closing-ends-calls",
    "a-lease-ends-calls",
    "serial-calls-keep-their-order",
    "a-cancelled-call-is-stopped",
    "a-queued-call-can-be-cancelled",
    "a-session-outlives-a-cancelled-call",
    "media-have-a-type",
)
"""What hangs on the tool itself. All checks take minutes: each session opens a page."""

TOOLSVC = [sys.executable, "-c", "from toolsvc.cli import main; main()"]
SLOWLY = ("--pace", "2")
"""Each session starts a renderer, and other tests want the same two cores."""

PROBES = """
[browser]
echo = {{ action = "navigate", url = "http://{host}/echo?text=@text@" }}
effect = {{ action = "navigate", url = "http://{host}/count" }}
read = {{ action = "navigate", url = "http://{host}/counted" }}
sleep = {{ action = "navigate", url = "http://{host}/count-slowly?seconds=@seconds@" }}
"""


@pytest.mark.timeout(300)
def test_the_contract_is_kept_and_a_killed_service_leaves_nothing(
    start: Callable[..., Service], tmp_path: Path
) -> None:
    with site() as pages:
        probes = PROBES.format(host=pages.address)
        service = start("browser", "--set", f"browser.allow={pages.address}")
        words = [*SLOWLY, *(word for name in CHECKS for word in ("--only", name))]
        least = len(CHECKS)
        keeps_the_contract(service.address, *words, folder=tmp_path, least=least, probes=probes)

        # A browser that has grown ends with its last session: this session has one that stays.
        address = f"http://{pages.address}/echo?text=a"
        words = ["call", service.address, "browser", "--arguments"]
        visit = json.dumps({"action": "navigate", "url": address})
        subprocess.run([*TOOLSVC, *words, visit, "--session", "stays"], check=True, timeout=120)
        family, profile = browser_of(service)
    folder = Path(profile.partition("=")[2])
    assert folder.is_dir()
    service.process.kill()
    _, left = psutil.wait_procs(family, timeout=40)
    assert not left
    assert not folder.exists()


def browser_of(service: Service) -> tuple[list[psutil.Process], str]:
    """Its processes and the word that names its profile. One that is being replaced is awaited."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        family = psutil.Process(service.process.pid).children(recursive=True)
        profiles = {word for process in family for word in words_of(process) if is_profile(word)}
        if len(profiles) == 1:
            return family, profiles.pop()
        time.sleep(0.05)
    raise AssertionError("no browser, or more than one")


def words_of(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:  # a renderer comes and goes
        return []


def is_profile(word: str) -> bool:
    return word.startswith("--user-data-dir=")
