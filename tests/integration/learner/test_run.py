"""The loop against a small engine: exactly once in the surviving lineage, whatever dies."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from prometheus_client.parser import text_string_to_metric_families
from safetensors.torch import load_file

from learner import run as loop
from learner.errors import CheckpointError, EngineError, PortError, TakenError
from learner.lock import only_learner
from learner.loop import step as stepping
from learner.loop.state import Run
from learner.model.host_states import HostStates
from tests.integration.learner.fake_engine import FakeEngine, random_group
from tests.integration.learner.models import VOCABULARY, reference_log_probs, weights, write_model
from tests.integration.learner.test_sft import write_recipe
from tests.support.net import free_port
from toolwright import types as t
from toolwright.recipe import Recipe

pytestmark = pytest.mark.slow


def recipe_for(folder: Path, model: Path, engine: FakeEngine, **changes: Any) -> Recipe:
    given = {
        "run.engine": f'"{engine.address}"',
        "learner.checkpoint_every": 2,
        "learner.keep_checkpoints": 99,
        "learner.lease_wait_s": 0.2,
        "learner.optimizer.lr": 1e-3,
    }
    return write_recipe(folder, model, **{**given, **changes})


def ledger(folder: Path) -> list[dict[str, Any]]:
    """Entries of all checkpoints, in order of consumption; each has those since the last."""
    entries: list[dict[str, Any]] = []
    for path in sorted((folder / "run" / "checkpoints").glob("step-*")):
        head, *rest = map(
            json.loads, (path / "ledger.jsonl").read_text(encoding="utf-8").splitlines()
        )
        assert head["settled"] == len(entries)
        entries += rest
    return entries


def metrics(folder: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for line in (folder / "run" / "learner.jsonl").read_text(encoding="utf-8").splitlines()
    ]


def steps_of(engine: FakeEngine) -> list[int]:
    return [version.step for version, _ in engine.published]


def test_a_run_of_no_steps_publishes_what_it_was_given(
    tmp_path: Path, model_folder: Path, engine: FakeEngine
) -> None:
    recipe = recipe_for(tmp_path, model_folder, engine, **{"run.steps": 0})
    final = loop.run(recipe)
    assert steps_of(engine) == [0] and metrics(tmp_path) == []
    given, kept = weights(model_folder), weights(final)
    assert given.keys() == kept.keys()
    assert all(torch.equal(given[name], kept[name]) for name in given)
    assert loop.run(recipe) == final, "the same command ends well again"


def test_a_run_from_start_to_end(tmp_path: Path, model_folder: Path, engine: FakeEngine) -> None:
    final = loop.run(recipe_for(tmp_path, model_folder, engine))
    assert steps_of(engine) == [0, 1, 2, 3, 4]
    assert {parent for _, parent in engine.published} == {None}
    entries = ledger(tmp_path)
    assert [entry["sequence_number"] for entry in entries] == list(range(1, 13))
    assert [entry["step"] for entry in entries] == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3
    assert engine.durable == 12
    lines = metrics(tmp_path)
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    for name in ("reward", "reward/answer", "clip_fraction", "entropy", "grad_norm", "gap_max"):
        assert name in lines[0]
    for name in ("staleness_max", "response_length", "calls", "tool_fraction", "lease_s", "loss"):
        assert name in lines[0]
    published = engine.folder
    assert published.name == f"{engine.version.lineage}-4"  # type: ignore[union-attr]
    first, second = weights(published), weights(final)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert len(list(published.parent.iterdir())) == 3


def test_a_file_that_grew_gives_a_resumed_run_more_steps(
    tmp_path: Path, model_folder: Path, engine: FakeEngine
) -> None:
    """Three groups a step, each row twice: 3 rows are two steps, 6 rows are four."""
    rows = tmp_path / "rows.jsonl"
    changes = {"run.epochs": 2, "task.source": "rows.jsonl"}
    for count, steps in ((3, [0, 1, 2]), (6, [0, 1, 2, 3, 4])):
        rows.write_text("{}\n" * count, encoding="utf-8")
        loop.run(recipe_for(tmp_path, model_folder, engine, **changes))
        assert steps_of(engine) == steps
    assert [line["step"] for line in metrics(tmp_path)] == [1, 2, 3, 4]


def test_samplers_on_the_same_gpu_release_their_memory_for_each_step(
    tmp_path: Path, model_folder: Path, engine: FakeEngine
) -> None:
    recipe = recipe_for(
        tmp_path, model_folder, engine,
        **{"run.steps": 2, "run.share_gpu": True, "run.max_staleness": 0,
           "run.correction": "bypass"},
    )  # fmt: skip
    loop.run(recipe)
    assert engine.turns == ["publish", "resume", "release", "publish", "release", "publish"]


def test_a_step_that_fails_returns_the_memory_of_the_samplers(
    tmp_path: Path, model_folder: Path, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def improve(*_: Any, **__: Any) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(stepping, "improve", improve)
    recipe = recipe_for(
        tmp_path, model_folder, engine,
        **{"run.steps": 2, "run.share_gpu": True, "run.max_staleness": 0,
           "run.correction": "bypass", "learner.offload": True},
    )  # fmt: skip
    with pytest.raises(RuntimeError, match="out of memory"):
        loop.run(recipe)
    assert engine.turns == ["publish", "resume", "release", "resume"]


def test_states_leave_the_gpu_before_the_samplers_take_their_memory(
    tmp_path: Path, model_folder: Path, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("leave", "come_back"):
        move = getattr(HostStates, name)

        def noted(states: HostStates, name: str = name, move: Any = move) -> None:
            if states.away == (name == "come_back"):
                engine.turns.append(name)
            move(states)

        monkeypatch.setattr(HostStates, name, noted)
    recipe = recipe_for(
        tmp_path, model_folder, engine,
        **{"run.steps": 2, "run.share_gpu": True, "run.max_staleness": 0,
           "run.correction": "bypass", "learner.offload": True},
    )  # fmt: skip
    loop.run(recipe)
    step = ["release", "come_back", "leave", "publish"]
    assert engine.turns == ["leave", "publish", "resume", *step, *step]


def test_prometheus_sees_a_run_as_its_lines_have_it(
    tmp_path: Path, model_folder: Path, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    pages: list[str] = []

    def step(run: Run) -> bool:
        went_on = stepping.step(run)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            pages.append(answer.read().decode())
        return went_on

    monkeypatch.setattr(loop, "step", step)
    loop.run(recipe_for(tmp_path, model_folder, engine, **{"learner.metrics_port": port}))
    shown = [
        {
            (sample.name.removeprefix("toolwright_learner_"), *sample.labels.values()): sample.value
            for family in text_string_to_metric_families(page)
            for sample in family.samples
        }
        for page in pages
    ]
    lines = metrics(tmp_path)
    assert len(shown) == len(lines) == 4
    for page, line in zip(shown, lines, strict=True):
        assert page["weight_step",] == line["step"]
        for name, key in (("reward", "reward"), ("loss", "loss"), ("gradient_norm", "grad_norm")):
            assert page[name,] == pytest.approx(line[key], rel=1e-5)
    last = shown[-1]
    assert last["versions_published_total",] == 4
    assert last["groups_leased_total",] == last["groups_acknowledged_total",] == 12
    assert shown[0]["groups_acknowledged_total",] == 0, "its checkpoint comes with step 2"
    trained = sum(line["train_s"] for line in lines)
    assert last["step_seconds_sum", "train"] == pytest.approx(trained, rel=1e-5)
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10)


def test_a_metrics_port_that_is_taken(
    tmp_path: Path, model_folder: Path, engine: FakeEngine
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        recipe = recipe_for(tmp_path, model_folder, engine, **{"learner.metrics_port": port})
        with pytest.raises(PortError, match=f"learner.metrics_port: port {port} is in use"):
            loop.run(recipe)


def test_a_run_of_adapters(tmp_path: Path, model_folder: Path, engine: FakeEngine) -> None:
    """Published merged and alone; a second life finds its adapters; the frozen network is the
    reference."""
    changes = {"learner.lora.rank": 4, "learner.kl.coefficient": 0.1, "learner.optimizer.lr": 1e-2}
    half = recipe_for(tmp_path, model_folder, engine, **changes, **{"run.steps": 2})
    loop.run(half)
    middle = load_file(engine.folder / "adapter" / "adapter_model.safetensors")
    final = loop.run(recipe_for(tmp_path, model_folder, engine, **changes, **{"run.steps": 4}))
    assert steps_of(engine)[-1] == 4
    assert metrics(tmp_path)[0]["kl_reference"] == 0
    assert metrics(tmp_path)[-1]["kl_reference"] > 0
    base, merged = weights(model_folder), weights(final)
    last = load_file(final / "adapter" / "adapter_model.safetensors")
    name = "model.layers.1.mlp.down_proj"
    a, b = (last[f"base_model.model.{name}.lora_{half}.weight"] for half in "AB")
    assert b.abs().max() > middle[f"base_model.model.{name}.lora_B.weight"].abs().max() > 0
    found = base[f"{name}.weight"] + 32.0 / 4 * b @ a
    assert torch.allclose(merged[f"{name}.weight"], found, atol=1e-6)
    assert torch.equal(merged["model.embed_tokens.weight"], base["model.embed_tokens.weight"])


def test_a_run_that_publishes_adapters(
    tmp_path: Path, model_folder: Path, engine: FakeEngine
) -> None:
    """Each version's folder is PEFT's, a resumed run goes on with them, and the final folder is
    merged. The probe reads them, as it does whole folders."""
    changes = {"run.publish_adapters": True, "learner.lora.rank": 4, "learner.optimizer.lr": 1e-2}
    loop.run(recipe_for(tmp_path, model_folder, engine, **changes, **{"run.steps": 2}))
    final = loop.run(recipe_for(tmp_path, model_folder, engine, **changes, **{"run.steps": 4}))
    assert steps_of(engine)[-1] == 4
    names = {path.name for path in engine.folder.iterdir()}
    assert names == {"adapter_config.json", "adapter_model.safetensors"}
    published = load_file(engine.folder / "adapter_model.safetensors")
    last = load_file(final / "adapter" / "adapter_model.safetensors")
    assert all(torch.equal(published[name], tensor) for name, tensor in last.items())
    assert not torch.equal(
        weights(final)["model.layers.1.mlp.down_proj.weight"],
        weights(model_folder)["model.layers.1.mlp.down_proj.weight"],
    )


def test_death_between_publish_and_checkpoint_opens_a_new_lineage(
    tmp_path: Path, model_folder: Path, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps 1 to 3 are published, 2 is the checkpoint; 3 is abandoned with its groups."""
    recipe = recipe_for(tmp_path, model_folder, engine)

    def die_at_three(run: Run, *_rest: Any) -> dict[str, float]:
        if run.version.step == 3:
            raise KeyboardInterrupt
        return {}

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(stepping, "report_step", die_at_three)
        loop.run(recipe)
    old = engine.published[0][0].lineage
    assert steps_of(engine) == [0, 1, 2, 3]
    assert engine.durable == 6

    loop.run(recipe)
    version, parent = engine.published[4]
    assert version.lineage != old
    assert version.step == 2
    assert parent == t.WeightVersion(lineage=old, step=2)
    assert steps_of(engine)[4:] == [2, 3, 4]
    entries = ledger(tmp_path)
    assert len({entry["group"] for entry in entries}) == len(entries) == 12
    # Groups 7 to 9 were trained on by weights that died; they are no part of the survivors.
    assert [(e["lineage"] == old, e["sequence_number"]) for e in entries[:6]] == [
        (True, number) for number in range(1, 7)
    ]
    assert {entry["lineage"] for entry in entries[6:]} == {version.lineage}


def test_groups_that_were_trained_on_are_recognised(
    tmp_path: Path, model_folder: Path, engine: FakeEngine
) -> None:
    """An engine that came back offers old groups under new numbers."""

    def repeat(number: int, version: t.WeightVersion, folder: Path) -> Any:
        frozen = t.WeightVersion(lineage=version.lineage, step=0)
        return random_group(number - 2 if number > 3 else number, frozen, folder)

    engine.write = repeat
    loop.run(recipe_for(tmp_path, model_folder, engine, **{"run.steps": 2}))
    names = [entry["group"] for entry in ledger(tmp_path)]
    assert len(set(names)) == len(names) == 6
    assert [line["duplicate_groups"] for line in metrics(tmp_path)] == [0, 2]


def test_a_group_with_another_hash_is_refused(
    tmp_path: Path, model_folder: Path, engine: FakeEngine
) -> None:
    produce = engine._produce

    def spoil(number: int) -> None:
        produce(number)
        engine.groups[number][1].content_hash = "0" * 64

    engine._produce = spoil  # type: ignore[method-assign]
    with pytest.raises(EngineError, match="hash"):
        loop.run(recipe_for(tmp_path, model_folder, engine))


def test_a_second_learner_is_refused_before_it_touches_anything(
    tmp_path: Path, model_folder: Path, engine: FakeEngine
) -> None:
    recipe = recipe_for(tmp_path, model_folder, engine)
    with only_learner(recipe.run_folder), pytest.raises(TakenError, match="another learner works"):
        loop.run(recipe)
    assert [path.name for path in recipe.run_folder.iterdir()] == ["learner.lock"]
    assert engine.learners == []


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("lag", [0, 1])
def test_sampler_and_learner_agree(
    tmp_path: Path, model_folder: Path, engine: FakeEngine, temperature: float, lag: int
) -> None:
    """Behaviour log-probs by transformers from the published folder; above staleness 0 from the
    one before, which the probe reads back."""
    folders: list[tuple[t.WeightVersion, Path]] = []

    def write(number: int, version: t.WeightVersion, folder: Path) -> Any:
        if not folders or folders[-1][0] != version:
            folders.append((version, folder))
        by, where = folders[max(0, len(folders) - 1 - lag)]
        out = []
        for trajectory in random_group(number, by, folder, vocabulary=VOCABULARY, size=2):
            (sequence,) = trajectory.sequences
            tokens = list(sequence.token_ids)
            logp = [0.0, *reference_log_probs(where, tokens, temperature)[0].tolist()]
            segments, place = [], 0
            for segment in sequence.segments:
                end = place + len(segment.token_ids)
                if segment.logprobs is not None:
                    segment = replace(
                        segment,
                        logprobs=tuple(logp[place:end]),
                        sampling=t.SamplingParams(temperature=temperature),
                    )
                segments.append(segment)
                place = end
            out.append(
                replace(trajectory, sequences=(replace(sequence, segments=tuple(segments)),))
            )
        return out

    engine.write = write
    changes: dict[str, Any] = {"run.steps": 3, "run.groups_per_step": 2}
    if lag:
        changes |= {"run.max_staleness": 1, "run.correction": '"decoupled"'}
        changes["learner.prefetch"] = "false"  # the lag of these groups is the test's own
    loop.run(recipe_for(tmp_path, model_folder, engine, **changes))
    for line in metrics(tmp_path):
        assert line["gap_max"] < 1e-4
        assert line["gap_tokens"] > 0
    assert metrics(tmp_path)[-1].get("gap_probe_age", 0) == lag


def test_an_absent_engine_is_named_after_its_patience(tmp_path: Path, model_folder: Path) -> None:
    gone = FakeEngine()
    gone.stop()
    with pytest.raises(EngineError, match="engine serve"):
        loop.run(recipe_for(tmp_path, model_folder, gone, **{"learner.engine_patience_s": 0.3}))


def test_another_model_does_not_resume(
    tmp_path: Path, model_folder: Path, engine: FakeEngine
) -> None:
    loop.run(recipe_for(tmp_path, model_folder, engine, **{"run.steps": 1}))
    other = write_model(tmp_path / "other", "qwen2-untied")
    with pytest.raises(CheckpointError, match="model"):
        loop.run(recipe_for(tmp_path, other, engine))
