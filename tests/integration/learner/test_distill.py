"""`learner run` with a teacher: the policy comes closer to it, and a teacher that does not fit is
refused."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from learner import run as loop
from learner.config.objective import Distill
from learner.config.tables import LearnerTable
from learner.config.weights import Optimizer
from learner.errors import ModelError
from learner.loop.teachers import load_teachers, scored_by_teachers
from learner.model.policy import load_policy
from tests.integration.learner.fake_engine import FakeEngine
from tests.integration.learner.models import SHAPE, VOCABULARY, reference_log_probs, write_model
from tests.integration.learner.rows import make_rows
from tests.integration.learner.test_run import metrics, recipe_for
from toolwright import types as t
from toolwright.recipe import Recipe

pytestmark = pytest.mark.quick

TEACHER: dict[str, Any] = {"learner.loss.kind": '"distill"'}
PROMPT, ACTION, SEEN = 4, 5, 3


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another architecture than the policy's, with the same ids."""
    return write_model(tmp_path_factory.mktemp("teacher") / "llama", "llama-untied", seed=7)


@cache
def network(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


@torch.no_grad()
def own_samples(number: int, version: t.WeightVersion, folder: Path) -> list[t.Trajectory]:
    """Four rollouts of two actions, sampled from the published policy. All rewards are equal."""
    draw = torch.Generator().manual_seed(number)

    def given(size: int) -> torch.Tensor:
        return torch.randint(VOCABULARY, (4, size), generator=draw)

    ids, logprobs = given(PROMPT), []
    for action in range(2):
        if action:
            ids = torch.cat([ids, given(SEEN)], 1)
        for _ in range(ACTION):
            logp = network(folder)(ids).logits[:, -1].log_softmax(-1)
            chosen = torch.multinomial(logp.exp(), 1, generator=draw)
            logprobs.append(logp.gather(1, chosen))
            ids = torch.cat([ids, chosen], 1)
    said = torch.cat(logprobs, 1).tolist()
    return [rollout(number, n, row, said[n], version) for n, row in enumerate(ids.tolist())]


def rollout(
    number: int, index: int, ids: list[int], said: list[float], version: t.WeightVersion
) -> t.Trajectory:
    def action(turn: int) -> t.Segment:
        start = PROMPT + turn * (ACTION + SEEN)
        return t.Segment(
            author=t.Author.MODEL,
            token_ids=tuple(ids[start : start + ACTION]),
            turn=turn,
            logprobs=tuple(said[turn * ACTION : (turn + 1) * ACTION]),
            weight_version=version,
            trainable=True,
            sampling=t.SamplingParams(temperature=1.0),
        )

    seen = tuple(ids[PROMPT + ACTION : PROMPT + ACTION + SEEN])
    segments = (
        t.Segment(author=t.Author.PROMPT, token_ids=tuple(ids[:PROMPT])),
        action(0),
        t.Segment(author=t.Author.TOOL, token_ids=seen, turn=0),
        action(1),
    )
    return t.Trajectory(
        id=f"g{number}/{index}",
        group_id=f"g{number}",
        index=index,
        task=t.Task(id=f"g{number}"),
        sequences=(t.Sequence(id="0", segments=segments),),
        status=t.Status.COMPLETED,
        stop_reason=t.StopReason.ANSWERED,
        reward=1.0,
    )


@torch.no_grad()
def reverse_kl(student: Path, teacher: Path) -> float:
    """Mean KL(student || teacher) in nats, over all words at positions of random texts."""
    texts = torch.randint(VOCABULARY, (32, 16), generator=torch.Generator().manual_seed(1))
    own, other = (network(one)(texts).logits.log_softmax(-1) for one in (student, teacher))
    return float((own.exp() * (own - other)).sum(-1).mean())


def test_the_policy_comes_closer_to_its_teacher(
    tmp_path: Path, model_folder: Path, teacher: Path, engine: FakeEngine
) -> None:
    engine.write = own_samples
    changes = {
        **TEACHER,
        "learner.distill.teacher": f'"{teacher}"',
        "learner.optimizer.lr": 3e-3,
        "run.groups_per_step": 8,
        "run.steps": 12,
    }
    final = loop.run(recipe_for(tmp_path, model_folder, engine, **changes))
    before, after = reverse_kl(model_folder, teacher), reverse_kl(final, teacher)
    assert after < 0.8 * before, (before, after)
    lines = metrics(tmp_path)
    assert all(line["worthless_steps"] == 0 and line["gap_max"] < 1e-4 for line in lines)
    assert np.mean([line["kl_teacher"] for line in lines[-3:]]) < lines[0]["kl_teacher"]


def distilled(folder: Path, policy: Path, **changes: Any) -> tuple[Recipe, LearnerTable]:
    engine: Any = type("Nowhere", (), {"address": "127.0.0.1:1"})
    recipe = recipe_for(folder, policy, engine, **{**TEACHER, **changes})
    return recipe, recipe.table("learner", LearnerTable)


def test_each_task_has_its_own_teacher(
    tmp_path: Path, model_folder: Path, teacher: Path, one_rank: None
) -> None:
    """Log-probs are those of transformers; tasks that name one folder share one model."""
    recipe, table = distilled(
        tmp_path,
        model_folder,
        **{
            "tasks.sums.share": 1,
            "tasks.finds.share": 1,
            "tasks.asks.share": 1,
            "learner.distill.teacher": f'"{teacher}"',
            "learner.distill.teachers": f'{{finds = "{model_folder}"}}',
        },
    )
    policy = load_policy(model_folder, Optimizer(), "float32")
    teachers = load_teachers(recipe, table, policy, print)
    assert [one.source for one in teachers] == [teacher, model_folder, teacher]
    assert teachers[0] is teachers[2]
    rows = [replace(row, task=place % 3) for place, row in enumerate(make_rows(6))]
    done = scored_by_teachers(teachers, rows, 60)
    for place, row in enumerate(done):
        expected, _ = reference_log_probs(teachers[place % 3].source, row.tokens.tolist())
        assert row.teacher is not None
        assert row.teacher[1:] == pytest.approx(
            np.where(row.target[1:], expected.numpy(), 0), abs=1e-5
        )


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"tokenizer": {"model": {"vocab": {"a": 0}}}}, "has other token ids than"),
        ({"tokenizer": {"added_tokens": [{"id": 3, "content": "<x>"}]}}, "has other token ids"),
        ({"vocab_size": VOCABULARY - 1}, "a vocabulary of 63 ids and the policy one of 64"),
        ({"tokenizer": None}, "cannot be compared: .*tokenizer.json cannot be read"),
    ],
)
def test_a_teacher_with_other_ids_is_refused(
    tmp_path: Path,
    model_folder: Path,
    one_rank: None,
    monkeypatch: pytest.MonkeyPatch,
    change: dict[str, Any],
    says: str,
) -> None:
    if "vocab_size" in change:
        monkeypatch.setitem(SHAPE, "vocab_size", change["vocab_size"])
    folder = write_model(tmp_path / "teacher")
    if "tokenizer" in change:
        file = folder / "tokenizer.json"
        file.unlink()
        if change["tokenizer"] is not None:
            file.write_text(json.dumps(change["tokenizer"]), encoding="utf-8")
    recipe, table = distilled(tmp_path, model_folder, **{"learner.distill.teacher": f'"{folder}"'})
    policy = load_policy(model_folder, Optimizer(), "float32")
    with pytest.raises(ModelError, match=says):
        load_teachers(recipe, table, policy, print)


def test_the_teachers_fit_the_tasks() -> None:
    some = Distill(teachers={"a": "x"})
    assert some.fault(["a"]) is None
    assert "task 'b' has no teacher: set learner.distill.teachers.b" in (
        some.fault(["a", "b"]) or ""
    )
    assert "names 'a', which is not under [tasks]" in (some.fault([""]) or "")
    by_server = Distill(teacher="http://127.0.0.1:30010", teachers={"b": "x"})
    assert (by_server.urls, by_server.folders) == ({"http://127.0.0.1:30010"}, {"x"})
    with pytest.raises(ValueError, match='write "http://HOST:PORT"'):
        Distill(teacher="http://:x")
