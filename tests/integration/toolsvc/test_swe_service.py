"""The swe tool as an engine meets it: over gRPC."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.support.repository import FIX
from tests.support.swe import Source, call
from toolsvc.cli import app

pytestmark = pytest.mark.quick

FIXES = call("file_editor", command="str_replace", path="bill.py", old_str=FIX[0], new_str=FIX[1])
CHEATS = call("execute_bash", command="echo 'import unittest' > tests/test_bill.py")
HANGS = call("execute_bash", command="echo 'while True: pass' >> bill.py")


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return Source(tmp_path)


def test_rewards_over_grpc(start: Callable[..., Any], source: Source) -> None:
    folders = {"repositories": source.repositories, "verifications": source.verifications}
    settings = [f"--set=swe.{name}={folder}" for name, folder in folders.items()]
    address = start("swe", *settings, "--ready", "2", "--shards", "1").address
    for name, action, verification, reward in (
        ("fixes", FIXES, "bill-1", 1.0),
        ("cheats", CHEATS, "bill-1", 0.0),
        ("hangs", HANGS, "impatient", 0.0),
    ):
        metadata = json.dumps(source.task(verification=verification))
        words = ["call", address, "swe", "--session", name, "--metadata", metadata, "--json"]
        edited = CliRunner().invoke(app, [*words, action])
        assert edited.exit_code == 0, edited.output
        submitted = CliRunner().invoke(app, [*words, call("submit")])
        result = json.loads(submitted.stdout)
        assert (result["done"], result["reward"]) == (True, reward)
