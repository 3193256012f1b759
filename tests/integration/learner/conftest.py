"""The stand-in for the missing CUDA device comes before Megatron."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from learner.ranks import device

if TYPE_CHECKING:
    from tests.integration.learner.fake_engine import FakeEngine

device.install()


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Qwen3, tied."""
    from tests.integration.learner.models import write_model

    return write_model(tmp_path_factory.mktemp("model") / "qwen3")


@pytest.fixture(scope="session")
def imported() -> None:
    """What the learner imports is no garbage: each end of a process group looked through it."""
    import torch._dynamo  # which every optimizer imports

    import learner.model.policy

    assert torch._dynamo and learner.model.policy
    gc.collect()
    gc.freeze()


@pytest.fixture
def one_rank(imported: None) -> Iterator[None]:
    """A process group of this process alone."""
    from learner.ranks import parallel

    with parallel.ranks():
        yield


@pytest.fixture
def engine() -> Iterator[FakeEngine]:
    """A small engine without a sampler."""
    from tests.integration.learner.fake_engine import FakeEngine

    server = FakeEngine()
    yield server
    server.stop()
