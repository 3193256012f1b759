"""Codecs of real Hugging Face folders, made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.core.text.codec import HuggingFaceCodec
from tests.support.policy import QWEN_TEMPLATE, write_policy


@pytest.fixture(scope="session")
def codec(policy_folder: Path) -> HuggingFaceCodec:
    return HuggingFaceCodec(policy_folder)


@pytest.fixture(scope="session")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> HuggingFaceCodec:
    """A codec whose template has Qwen's habits."""
    folder = write_policy(tmp_path_factory.mktemp("qwen"), template=QWEN_TEMPLATE)
    return HuggingFaceCodec(folder)
