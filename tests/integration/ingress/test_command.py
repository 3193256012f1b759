"""`ingress serve`: it begins, answers, and ends at SIGTERM."""

from __future__ import annotations

import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.support.recipes import recipe_tables, write_recipe

pytestmark = pytest.mark.slow


def small_recipe(folder: Path, policy: Path) -> Path:
    here = "127.0.0.1:9"
    tables = recipe_tables(policy=policy, sampler=f"http://{here}", tools={}, engine=here)
    return write_recipe(folder, tables)


def serve(recipe: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "ingress.cli", "serve", str(recipe), *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_it_serves_until_sigterm(tmp_path: Path, policy_folder: Path) -> None:
    recipe = small_recipe(tmp_path, policy_folder)
    with serve(recipe, "--listen", "127.0.0.1:0") as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            url = line.split()[-1]
            assert line.startswith("serving agents on http://127.0.0.1:")
            with urllib.request.urlopen(f"{url}/health", timeout=30) as answer:
                assert b"healthy" in answer.read()
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--listen", "nowhere"), "write it as host:port"),
        (("--set", "policy.model=nothing"), "no tokenizer in"),
    ],
)
def test_what_it_cannot_serve_is_one_sentence(
    tmp_path: Path, policy_folder: Path, words: tuple[str, ...], says: str
) -> None:
    recipe = small_recipe(tmp_path, policy_folder)
    with serve(recipe, *words) as process:
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert errors.startswith("ingress: ")
    assert says in errors
    assert len(errors.splitlines()) == 1
