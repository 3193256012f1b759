"""A policy that reads images: the same numbers as transformers, with images and without."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from bench.gpu.stages import independent
from engine.serving.publish.policy_folder import check_policy_folder
from engine.serving.publish.policy_shape import difference
from learner.cli import app
from learner.config.weights import Lora, Optimizer, Parallel, Vision
from learner.errors import DataError, ModelError
from learner.intake.ledger import Ledger
from learner.model.policy import Policy, borrowed_weights, load_frozen, load_policy
from learner.saving.checkpoint import Checkpoints
from learner.training.batch import Row, collate, micro_batches
from learner.training.step import gradients, score
from learner.training.update import Update, improve
from learner.vision.pixels import Pixels
from tests.integration.learner.models import write_model
from tests.integration.learner.named import named_gradients, named_weights
from tests.integration.learner.rows import weighed
from tests.integration.learner.seeing import (
    load_seeing,
    picture,
    pictures,
    seeing_log_probs,
    seeing_rows,
    write_seeing_model,
)
from tests.integration.learner.test_plain_step import OBJECTIVE, SETTINGS, worst

pytestmark = pytest.mark.quick


def train(policy: Policy, rows: list[Row]) -> Update:
    """One optimizer step."""
    return improve(
        policy,
        rows,
        OBJECTIVE,
        reference=None,
        updates=1,
        budget=60,
        step=0,
        steps=1,
        drop_silent=False,
    )


@pytest.mark.parametrize(("tied", "released"), [(False, True), (True, False)])
def test_log_probs_are_those_of_transformers(
    tmp_path: Path, one_rank: None, tied: bool, released: bool
) -> None:
    """In packed rows, with images in prompt and observation beside rows of text alone."""
    folder = write_seeing_model(tmp_path / "model", tied=tied, released=released)
    rows = seeing_rows(folder, 6)
    assert collate(rows, range(6)).positions.shape[0] == 3
    plain, others = load_seeing(folder), pictures(folder)[1:2]
    model = load_frozen(folder, "float32")
    together, _ = score(model, rows, 10_000, "old")
    apart, _ = score(model, rows, 1, "old")
    moved = 0.0
    for one, other in zip(together, apart, strict=True):
        chosen = torch.from_numpy(one.target[1:])
        with torch.no_grad():
            expected = seeing_log_probs(plain, one)[chosen]
        for row in (one, other):
            assert row.old is not None
            found = torch.from_numpy(row.old[1:])[chosen]
            assert (found - expected).abs().max() < 1e-5
        if len(one.shown) == 1 and one.shown[0].image.tokens == others[0].tokens:
            with torch.no_grad():
                blind = seeing_log_probs(plain, one, others)[chosen]
            moved = max(moved, float((blind - expected).abs().max()))
    assert moved > 1e-3, "another picture changes nothing here: the test proves nothing"


@pytest.mark.parametrize("vision", ["frozen", "trained"])
def test_a_step_is_that_of_plain_torch(tmp_path: Path, one_rank: None, vision: Vision) -> None:
    """Loss, gradients and weights, the tower's too, within 1e-5; any split within 1e-6."""
    folder = write_seeing_model(tmp_path / "model", released=False)
    policy = load_policy(folder, SETTINGS, "float32", vision=vision)
    plain = load_seeing(folder).train()
    plain.model.visual.requires_grad_(vision == "trained")
    rows = seeing_rows(folder, 6, seed=3)
    draw = torch.Generator().manual_seed(0)
    for row in rows:
        with torch.no_grad():
            row.behaviour[1:] = seeing_log_probs(plain, row).numpy()
        row.behaviour[:] += 0.5 * torch.randn(len(row.tokens), generator=draw).numpy()
    loss = independent.loss(plain, rows, to_sampler=True, log_probs=seeing_log_probs)
    want = independent.AdamW(plain, SETTINGS).step(loss)
    expected = want.gradients
    seen = [value for name, value in expected.items() if name.startswith("model.visual.")]
    assert all(bool(value.any()) == (vision == "trained") for value in seen)

    splits = []
    for budget in (100_000, 60, 1):
        parts = micro_batches(weighed(rows), rank=0, ranks=1, budget=budget)
        stats = gradients(policy, parts, OBJECTIVE)
        assert stats["loss"] == pytest.approx(want.loss, abs=1e-5)
        splits.append(named_gradients(policy))
    assert any(not part.shown for part in parts), "each micro-batch has an image"
    for other in splits[1:]:
        assert worst(other, splits[0]) < 1e-6
    assert splits[0].keys() == expected.keys()
    assert worst(splits[0], expected) < 1e-5

    before = named_weights(policy)
    done = train(policy, rows)
    assert done.grad_norm == pytest.approx(want.norm, abs=1e-5)
    found = named_weights(policy)
    for name, weight in plain.named_parameters():
        # Adam's step has the rate's size: a gradient that is all rounding has a sign by chance.
        clear = (expected[name].abs() > 1e-5) | (expected[name] == 0)
        difference = (found[name] - weight).abs()
        assert difference.max() < 2.5 * SETTINGS.lr
        assert not clear.any() or difference[clear].max() < 1e-5, name
        if name.startswith("model.visual.") and vision == "frozen":
            assert torch.equal(found[name], before[name])


@pytest.mark.parametrize("released", [True, False])
def test_a_folder_keeps_its_names_and_loads_in_transformers(
    tmp_path: Path, one_rank: None, released: bool
) -> None:
    """Before training bit by bit, afterwards with what was trained; the processor's file too."""
    source = write_seeing_model(tmp_path / "in", tied=released, released=released)
    policy = load_policy(source, Optimizer(lr=1e-2), "float32", vision="trained")
    policy.save(tmp_path / "same")
    assert difference(*map(check_policy_folder, (source, tmp_path / "same"))) is None
    before, same = load_seeing(source).state_dict(), load_seeing(tmp_path / "same").state_dict()
    assert before.keys() == same.keys()
    assert all(torch.equal(before[name], same[name]) for name in before)
    train(policy, seeing_rows(source, 3))
    policy.save(tmp_path / "out")
    assert difference(*map(check_policy_folder, (source, tmp_path / "out"))) is None
    plain = load_seeing(tmp_path / "out")
    assert not torch.equal(
        before["model.visual.patch_embed.proj.weight"],
        plain.state_dict()["model.visual.patch_embed.proj.weight"],
    )
    rows, _ = score(policy, seeing_rows(tmp_path / "out", 3), 60, "old")
    for row in rows:
        assert row.old is not None
        chosen = torch.from_numpy(row.target[1:])
        with torch.no_grad():
            expected = seeing_log_probs(plain, row)[chosen]
        assert (torch.from_numpy(row.old[1:])[chosen] - expected).abs().max() < 1e-5
    # The probe's way: another folder's weights in the same memory, and back.
    own = named_weights(policy)
    with borrowed_weights(policy, source):
        lent, _ = score(policy, rows, 60, "old")
    assert any((a.old != b.old).any() for a, b in zip(lent, rows, strict=True))  # type: ignore[union-attr]
    back = named_weights(policy)
    assert all(torch.equal(back[name], own[name]) for name in own)


def test_a_checkpoint_has_the_tower_and_what_becomes_of_it(tmp_path: Path, one_rank: None) -> None:
    folder = write_seeing_model(tmp_path / "model")
    rows = seeing_rows(folder, 3)
    policy = load_policy(folder, Optimizer(lr=1e-2), "float32", vision="trained")
    train(policy, rows)
    checkpoints = Checkpoints(tmp_path / "checkpoints", 1)
    path = checkpoints.save(policy, 1, "one", {}, Ledger())
    train(policy, rows)
    again = load_policy(folder, Optimizer(lr=1e-2), "float32", vision="trained")
    checkpoints.load(again, path)
    train(again, rows)
    one, other = named_weights(policy), named_weights(again)
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert load_policy(folder, Optimizer(), "float32").shape != policy.shape


def test_the_command_compares_with_an_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without M-RoPE it would be another model, and it says so."""
    folder = write_seeing_model(tmp_path / "model")
    told = CliRunner().invoke(app, ["check", str(folder)])
    assert (told.exit_code, "agree with transformers" in told.stdout) == (0, True), told.stderr
    monkeypatch.setattr(
        "learner.check.positions_of",
        lambda length, _shown: np.broadcast_to(np.arange(length), (3, length)).copy(),
    )
    told = CliRunner().invoke(app, ["check", str(folder)])
    assert told.exit_code == 1
    assert "differs from transformers' by" in told.stderr


def test_what_cannot_be_trained_is_a_sentence(tmp_path: Path, one_rank: None) -> None:
    folder = write_seeing_model(tmp_path / "model")
    text = write_model(tmp_path / "text", "qwen2-tied")
    with pytest.raises(ModelError, match=r"reads no images.*learner\.vision"):
        load_policy(text, Optimizer(), "float32", vision="trained")
    with pytest.raises(ModelError, match=r"lora is for text policies"):
        load_policy(folder, Optimizer(), "float32", Lora())
    with pytest.raises(ModelError, match=r"parallel\.sequence = false"):
        load_policy(folder, Optimizer(), "float32", layout=Parallel(tensor=2, sequence=True))
    config = folder / "config.json"
    whole = config.read_text(encoding="utf-8")
    config.write_text(whole.replace('"mrope_section"', '"sections"'), encoding="utf-8")
    with pytest.raises(ModelError, match=r"M-RoPE .*adds up to 4"):
        load_policy(folder, Optimizer(), "float32")
    config.write_text(
        whole.replace('"out_hidden_size": 32', '"out_hidden_size": 16'), encoding="utf-8"
    )
    with pytest.raises(ModelError, match=r"merger\.mlp\.2\..* has the shape"):
        load_policy(folder, Optimizer(), "float32")
    config.write_text(whole, encoding="utf-8")
    (folder / "preprocessor_config.json").unlink()
    with pytest.raises(ModelError, match=r"preprocessor_config\.json"):
        load_policy(folder, Optimizer(), "float32")


def test_files_that_are_no_images_are_named(tmp_path: Path) -> None:
    pixels = Pixels(write_seeing_model(tmp_path / "model"))
    whole = picture(56, 56)
    with pytest.raises(DataError, match="ab is not an image of PNG"):
        pixels.image("ab", b"<svg/>")
    cut = pixels.image("ab", whole[: len(whole) // 2])
    assert cut.grid == (2, 2)
    with pytest.raises(DataError, match="image ab cannot be read"):
        pixels([cut])
    assert pixels.whole("ab", whole) == pixels.image("ab", whole)
    with pytest.raises(DataError, match="image ab cannot be read"):
        pixels.whole("ab", whole[: len(whole) // 2])
    with pytest.raises(DataError, match="image ab cannot be read"):
        pixels.whole("ab", picture(56, 56 * 201)[:400])
    with pytest.raises(DataError, match=r"has 40000 x 40000 pixels|is not an image"):
        pixels.whole("ab", vast())


def test_bfloat16_leaves_the_towers_frequencies_as_they_are(tmp_path: Path, one_rank: None) -> None:
    """Rounded, they would turn far patches by other angles than the samplers' do."""
    folder = write_seeing_model(tmp_path / "model")
    policy = load_policy(folder, Optimizer(lr=1e-2), "bfloat16", vision="trained")
    tower, plain = policy.bare.visual, load_seeing(folder).model.visual
    assert tower.dtype is torch.bfloat16
    assert torch.equal(tower.rotary_pos_emb.inv_freq, plain.rotary_pos_emb.inv_freq)
    before = tower.patch_embed.proj.weight.detach().clone()
    assert train(policy, seeing_rows(folder, 3)).moved == 1
    assert not torch.equal(tower.patch_embed.proj.weight, before)


def vast() -> bytes:
    """A PNG of some bytes that says that it has 1.6 billion pixels."""
    whole = picture(56, 56)
    size = (40_000).to_bytes(4, "big") * 2
    header = b"IHDR" + size + whole[24:29]
    return whole[:12] + header + zlib.crc32(header).to_bytes(4, "big") + whole[33:]
