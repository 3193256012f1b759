"""What all tests share: one tiny policy folder a run, Hypothesis without deadlines, signals that
nobody ignores, and a process that does not look through its imports for garbage."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import Awaitable, Callable, Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.slowest import SlowestFiles
from tests.support.tiers import SLICES, Tiers

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

settings.register_profile(
    "toolwright",
    deadline=None,  # the machine is shared: a slow example is no failure
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("toolwright")


# Behind `nohup`, or a shell's &, signals are ignored, and by whatever a test starts as well. A
# handler is not inherited: what is started begins with signals as they are.
for _number in (signal.SIGHUP, signal.SIGINT):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, lambda *_: None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--slice",
        type=int,
        choices=range(SLICES),
        help="quick tests, and those slow files that are of this slice; without it: all tests",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(SlowestFiles(), "slowest-files")
    config.pluginmanager.register(Tiers(), "tiers")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """A million objects that collecting makes live as long as the process: looking through them
    took a fifth of the time until the first test, and most of each full collection after it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session")
def policy_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy folder without weights: configuration, tokenizer, chat template."""
    from tests.support.policy import write_policy

    return write_policy(tmp_path_factory.mktemp("policy"))


@pytest.fixture
def until() -> Callable[[Callable[[], bool]], Awaitable[None]]:
    """Awaits the moment at which a condition holds, for at most a minute: a machine may be busy."""

    async def wait(true: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not true():  # noqa: ASYNC110 - files and processes tell nobody
                await asyncio.sleep(0.01)

    return wait
