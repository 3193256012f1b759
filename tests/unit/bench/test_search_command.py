"""`bench search` refuses an unknown row before it makes any data."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench.cli import app


def test_a_row_that_is_none_is_refused_before_anything_is_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    for words, why in (
        (["--only", "ivf"], "'ivf': there are bm25-text, flat-clustered, ivf-clustered"),
        (["--threads", "1,0"], "'1,0': give numbers from 1 on"),
        (["--window", "two"], "'two': give numbers from 0 on"),
    ):
        done = CliRunner().invoke(app, ["search", *words], env={"COLUMNS": "400"})
        assert done.exit_code == 2
        assert why in done.stderr
    assert not list(tmp_path.iterdir())
