"""The environment of the published agents, and a policy that thinks and calls tools."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.policy import QWEN_TEMPLATE, write_policy

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def agents() -> Path:
    """The environment of the agents; the test is skipped without it."""
    folder = ROOT / ".venv-agents"
    if not (folder / "ready").exists():
        pytest.skip("there is no .venv-agents: `make test-agents` makes it")
    return folder


@pytest.fixture(scope="session")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("qwen") / "p"
    return write_policy(folder, template=QWEN_TEMPLATE, special=("<think>", "</think>"))
