"""Weights by a process group into the real SGLang on CPU, through the real engine.

Every token of a step is sampled with the version that the step begins with (staleness 0), so the
sampler/learner gap of each step says whether the server has that version's weights, all of them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from console.machine.ready import free_ports
from learner import run as loop
from tests.contract import real_sampler
from tests.integration.learner.test_run import metrics
from tests.support.policy import write_policy
from tests.support.recipes import TASK_FILE, to_toml
from toolwright.recipe import load_recipe

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

ROOT = Path(__file__).parents[3]
VOCABULARY = 320
STEPS = 3
REWARD = """
def score(trajectory):
    return {"sum": float(sum(trajectory.metadata["final_text"].encode()) % 7)}
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy folder with everything: tokenizer, chat template, random weights."""
    folder = write_policy(tmp_path_factory.mktemp("model"))
    return real_sampler.write_model(folder, 1, str(VOCABULARY))


@pytest.fixture(scope="module")
def sglang(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with real_sampler.serve(model, tmp_path_factory.mktemp("sglang") / "server.log") as url:
        yield url


def write_run(folder: Path, model: Path, sglang: str, learner: dict[str, Any], **run: Any) -> Path:
    """A recipe of tasks without tools, with a reward that random words get different shares of."""
    folder.mkdir()
    (folder / "task.py").write_text(TASK_FILE, encoding="utf-8")
    (folder / "reward.py").write_text(REWARD, encoding="utf-8")
    (port,) = free_ports(1)
    tables = {
        "run": {
            "name": "group",
            "folder": "run",
            "steps": STEPS,
            "groups_per_step": 2,
            "group_size": 4,
            "engine": f"127.0.0.1:{port}",
            **run,
        },
        "policy": {"model": model},
        "task": {
            "source": "task.py:training",
            "reward": "./reward.py:score",
            "limits": {"model": 2048, "action": 12, "response": 12},
        },
        "sampler": {"endpoints": [sglang]},
        "learner": {"lease_wait_s": 1.0, "engine_patience_s": 60.0, **learner},
    }
    file = folder / "recipe.toml"
    file.write_text(to_toml(tables), encoding="utf-8")
    return file


@contextmanager
def serving(recipe: Path) -> Iterator[None]:
    """`engine serve` in a process of its own; what it says goes into engine.log beside the recipe.

    The learner waits for it.
    """
    path = os.pathsep.join([str(ROOT), str(ROOT / "proto")])
    log = recipe.with_name("engine.log")
    with (
        log.open("wb") as out,
        subprocess.Popen(
            [sys.executable, "-m", "engine.cli", "serve", str(recipe)],
            env={**os.environ, "PYTHONPATH": path},
            stdout=out,
            stderr=out,
        ) as process,
    ):
        try:
            yield
        except BaseException as error:
            error.add_note(log.read_text(errors="replace", encoding="utf-8")[-2000:])
            raise
        finally:
            process.terminate()


def ask(url: str, **body: Any) -> Any:
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def checksums(sglang: str) -> Any:
    """Of every tensor that the server computes with."""
    return ask(sglang + "/weights_checker", action="checksum")["ranks"]


@pytest.mark.parametrize("kind", ["weights", "adapters"])
def test_what_sglang_has_is_what_the_folder_holds(
    tmp_path: Path, model: Path, sglang: str, kind: str
) -> None:
    learner: dict[str, Any] = {"publish": {"way": "group"}, "optimizer": {"lr": 3e-3}}
    if kind == "adapters":
        learner["lora"] = {"rank": 4}
    recipe = write_run(tmp_path / "here", model, sglang, learner)
    with serving(recipe):
        loop.run(load_recipe(recipe))
    found = metrics(tmp_path / "here")
    assert [line["step"] for line in found] == list(range(1, STEPS + 1))
    for line in found:
        assert line["group_tries"] == 1
        assert line["gap_tokens"] > 50
        assert line["gap_max"] < 1e-4
        assert line["grad_norm"] > 0
    sent = checksums(sglang)
    newest = tmp_path / "here" / "run" / "policy" / f"{found[-1]['lineage']}-{STEPS}"
    before = newest.with_name(f"{found[-1]['lineage']}-{STEPS - 1}")
    ask(sglang + "/update_weights_from_disk", model_path=str(before))
    assert checksums(sglang) != sent
    ask(sglang + "/update_weights_from_disk", model_path=str(newest))
    assert checksums(sglang) == sent
