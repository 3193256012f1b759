"""What a recipe says in several layers, and what nobody reads: what counts, and what is told."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from engine.offline.check.remarks import remarks
from tests.support.docs import DOCS
from tests.support.recipes import merged, to_toml
from toolwright.recipe import RecipeError, load_recipe
from toolwright.recipe.layers import packaged_fragments

TABLES: dict[str, Any] = {
    "run": {"name": "r", "folder": "out", "steps": 2, "groups_per_step": 3, "group_size": 4},
    "policy": {"model": "weights"},
    "task": {"source": "data.jsonl", "reward": "./my_reward.py:score"},
    "sampler": {"endpoints": ["http://127.0.0.1:1"]},
}


def said(folder: Path, *overrides: str, extends: list[str] | None = None, **tables: Any) -> str:
    """All remarks on a recipe with these tables over the fragments."""
    file = folder / "recipe.toml"
    file.write_text(
        f"extends = {extends or []}\n{to_toml(merged(TABLES, tables))}", encoding="utf-8"
    )
    return "\n".join(remarks(load_recipe(file, overrides)))


def test_one_line_says_what_is_in_force(tmp_path: Path) -> None:
    (line,) = said(
        tmp_path,
        run={"max_staleness": 2, "correction": "decoupled"},
        learner={
            "loss": {"kind": "gspo", "entropy": 0.01},
            "credit": {"turns": "anchor", "count_in_reward": True},
            "kl": {"coefficient": 0.001, "place": "reward"},
            "correction": {"veto": 1e-4},
            "optimizer": {"warmup_ratio": 0.1, "decay": "cosine"},
            "lora": {"rank": 8},
        },
    ).splitlines()
    assert line.startswith("[learner] in force: loss gspo (mean ratio 0.9997 to 1.0004), ")
    for words in ("entropy bonus 0.01", "veto below 0.0001", "turns by anchor", "rank 8"):
        assert words in line
    assert "0.001 in the reward; adam 1e-06, warm-up 0.1 of all steps, cosine to 0" in line


UNREAD: list[tuple[dict[str, Any], str]] = [
    ({"loss": {"tau_positive": 2}}, "is read where learner.loss.kind is 'sapo'. Here"),
    (
        {"advantage": {"estimator": "rloo", "std": "none"}},
        "learner.advantage.std = 'none' does nothing: it is read where "
        "learner.advantage.estimator is 'grpo'. Here learner.advantage.estimator = 'rloo'",
    ),
    ({"correction": {"upper": 3}}, "Here run.correction = 'bypass', learner.loss.kind = 'ppo'"),
    ({"kl": {"estimator": "k1"}}, "where learner.kl.coefficient is set and learner.kl.place is"),
    ({"prefetch": False}, "learner.prefetch = False does nothing"),
    ({"distill": {"teacher": "t"}}, "it is read where learner.loss.kind is 'distill'. Here"),
    (
        {
            "loss": {"kind": "distill"},
            "distill": {"teacher": "t"},
            "advantage": {"std": "none"},
        },
        "'gmpo' or 'reinforce'; or learner.distill.reward is set. Here learner.loss.kind = ",
    ),
]


@pytest.mark.parametrize(("table", "words"), UNREAD)
def test_a_key_that_nobody_reads_is_a_line(
    tmp_path: Path, table: dict[str, Any], words: str
) -> None:
    first, *warnings = said(tmp_path, learner=table).splitlines()
    assert first.startswith("[learner] in force: ")
    assert len(warnings) == 1
    assert warnings[0].startswith("warning: learner.") and words in warnings[0]


def test_rewards_of_tools_that_no_turn_is_credited_with_are_a_warning(tmp_path: Path) -> None:
    task = {**TABLES["task"], "tool_rewards": True}
    found = said(tmp_path, task=task)
    assert "warning: task.tool_rewards = true teaches nothing" in found
    for credit in ({"turns": "position"}, {"count_in_reward": True}):
        assert "warning" not in said(tmp_path, task=task, learner={"credit": credit})


def test_what_only_a_preset_says_is_no_warning(tmp_path: Path) -> None:
    """Its credit of turns is switched off by the recipe, and with it six keys of the preset."""
    searl = ["presets/searl_paper.toml"]
    assert "warning" not in said(tmp_path, extends=searl, learner={"credit": {"turns": "none"}})
    own = said(
        tmp_path, "learner.credit.turns=none", extends=searl, learner={"credit": {"std": "none"}}
    )
    assert own.count("warning: ") == 1 and "learner.credit.std = 'none' does nothing" in own


def test_a_fragment_of_ones_own_is_the_users(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("[learner.credit]\nweight = 2.0\n", encoding="utf-8")
    assert "learner.credit.weight = 2.0 does nothing" in said(tmp_path, extends=["mine.toml"])


@pytest.mark.parametrize("preset", packaged_fragments())
def test_a_preset_alone_has_no_doubts(tmp_path: Path, preset: str) -> None:
    assert "warning" not in said(tmp_path, extends=[preset], sft={"data": "x"})


@pytest.mark.parametrize(
    "page", ["your-own-run", "warm-up", "ablations", "on-gpus", "groups", "objective", "advantages"]
)
def test_what_the_docs_show_has_no_doubts(tmp_path: Path, page: str) -> None:
    (tmp_path / "base.toml").write_text(to_toml(TABLES), encoding="utf-8")
    text = (DOCS / "train" / f"{page}.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```toml\n(.*?)```", text, flags=re.DOTALL)
    assert blocks
    for block in blocks:
        own = re.sub(r"extends = \[", 'extends = ["base.toml", ', block)
        file = tmp_path / "recipe.toml"
        file.write_text(
            own if own != block else f'extends = ["base.toml"]\n{block}', encoding="utf-8"
        )
        assert "warning" not in "\n".join(remarks(load_recipe(file))), block


def test_bounds_of_a_preset_give_way_to_another_kind(tmp_path: Path) -> None:
    dapo = ["presets/grpo.toml", "presets/dapo.toml"]
    for kind, bounds in (("gspo", "0.9997 to 1.0004), seq-mean-token-mean"), ("sapo", "tau 1")):
        found = said(tmp_path, extends=dapo, learner={"loss": {"kind": kind}})
        assert bounds in found and "warning" not in found
    found = said(tmp_path, extends=dapo, learner={"loss": {"kind": "ppo", "clip_low": 0.1}})
    assert "ratio 0.9 to 1.28" in found  # the same kind: the preset's other bounds count
    with pytest.raises(RecipeError, match="leave both out for its paper's"):
        said(tmp_path, extends=dapo, learner={"loss": {"kind": "gspo", "clip_low": 0.2}})


def test_a_file_over_another_gives_way_without_a_warning(tmp_path: Path) -> None:
    own = "[learner.optimizer]\nkind = 'muon'\nmuon_lr = 0.01\nlr = 1e-5\n"
    (tmp_path / "mine.toml").write_text(own, encoding="utf-8")
    found = said(tmp_path, extends=["mine.toml"], learner={"optimizer": {"kind": "adam"}})
    assert "adam 1e-05" in found and "warning" not in found
    assert "learner.optimizer.muon_lr of mine.toml does nothing: learner.optimizer.kind" in found
    found = said(tmp_path, "learner.optimizer.kind=adam", extends=["mine.toml"])
    assert "warning: learner.optimizer.muon_lr of mine.toml does nothing" in found
    found = said(tmp_path, extends=["mine.toml"], learner={"optimizer": {"kind": "muon"}})
    assert "muon 0.01 and adam 1e-05" in found and "does nothing" not in found


@pytest.mark.parametrize(
    ("below", "above", "counts", "lost"),
    [
        ("epochs = 2", "steps=7", "7 steps, 32 traces", ["epochs"]),
        ("steps = 7", "epochs=2", "each trace 2 times", ["steps"]),
        ("optimizer = { warmup_steps = 3 }", "optimizer.warmup_ratio=0", "warm-up 3 steps", []),
    ],
)
def test_of_two_lengths_the_higher_layers_counts(
    tmp_path: Path, below: str, above: str, counts: str, lost: list[str]
) -> None:
    (tmp_path / "below.toml").write_text(f"[sft]\ndata = 'x'\n{below}\n", encoding="utf-8")
    found = said(tmp_path, f"sft.{above}", extends=["below.toml"])
    assert counts in found
    told = [line for line in found.splitlines() if line.startswith("warning: ")]
    assert [line.split(" of below.toml does nothing: ")[0] for line in told] == [
        f"warning: sft.{key}" for key in lost
    ]
    with pytest.raises(RecipeError, match="steps = 9 and epochs = 3: give one of them"):
        said(tmp_path, sft={"data": "x", "steps": 9, "epochs": 3})


def test_a_sum_without_its_constant_is_told_the_number(tmp_path: Path) -> None:
    dr_grpo = {"loss": {"aggregation": "seq-sum-token-sum-norm"}, "updates": 2}
    run, task = {"groups_per_step": 8}, {"limits": {"response": 100}}
    found = said(tmp_path, run=run, task=task, learner=dr_grpo)
    assert "set learner.loss.norm = 1600, task.limits.response (100) times the 16 traj" in found
    for norm in ("1", "1600"):
        told = said(tmp_path, f"learner.loss.norm={norm}", run=run, task=task, learner=dr_grpo)
        assert "warning" not in told and f"seq-sum-token-sum-norm {norm};" in told
