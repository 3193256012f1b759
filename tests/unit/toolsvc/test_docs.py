"""The examples of docs/tools/your-own.md are tools; tests/integration/toolsvc/test_docs.py calls
them. That of docs/tools/built-in.md is registered by test_registry.py."""

from pathlib import Path

import pytest

from tests.support.tutorial import EXAMPLES, Example
from toolsvc.sandbox.config import SandboxConfig
from toolsvc.sources.loader import load_tools


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.file)
async def test_an_example_can_be_served(tmp_path: Path, example: Example) -> None:
    path = tmp_path / example.file
    path.write_text(example.code, encoding="utf-8")
    (tool,) = await load_tools([str(path)], {}, SandboxConfig())
    assert tool.describe().stop_strings
    assert len(example.code.splitlines()) <= 22
