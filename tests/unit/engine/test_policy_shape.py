"""Another policy than the served one is named by its first difference; the same one never is."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from engine.serving.publish.policy_folder import check_policy_folder
from engine.serving.publish.policy_shape import PolicyShape, difference, misfit, missing

CONFIG: dict[str, Any] = {
    "model_type": "qwen3",
    "hidden_size": 4,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "dtype": "bfloat16",
    "rope_scaling": {"rope_type": "linear", "factor": 2.0},
}
HEAD, EMBED, LAYER = "lm_head.weight", "model.embed_tokens.weight", "model.layers.0.q.weight"
TENSORS = {HEAD: ("BF16", (8, 4)), EMBED: ("BF16", (8, 4)), LAYER: ("BF16", (4, 4))}
SERVED = PolicyShape(config=CONFIG, tensors=TENSORS)


def offered(config: dict[str, Any] | None = None, **tensors: Any) -> PolicyShape:
    """The served policy with changes; a tensor that is None is left out."""
    found = {k: v for k, v in {**TENSORS, **tensors}.items() if v is not None}
    return PolicyShape(config={**CONFIG, **(config or {})}, tensors=found)


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        (offered(**{LAYER: ("BF16", (4, 8))}), f"its tensor {LAYER} has the shape [4, 8], the"),
        (offered(**{LAYER: None}), f"has no tensor {LAYER}, "),
        (offered(**{"model.layers.0.k": ("BF16", (4, 4))}), "a tensor model.layers.0.k"),
        (offered(**{LAYER: ("F8_E4M3", (4, 4))}), "is of type F8_E4M3"),
        (offered({"rope_theta": 5000.0}), "rope_theta = 5000.0, the samplers serve 10000.0"),
        (offered({"rope_scaling": None}), "rope_scaling = None"),
        (offered({"rope_scaling": {"rope_type": "yarn"}}), "rope_scaling.rope_type = 'yarn'"),
        (offered({"dtype": "float32", "torch_dtype": "float32", "transformers_version": "9"}), ""),
        (offered({"eos_token_id": 5, "use_cache": True, "a_newer_key": 1}), ""),
        (offered(**{name: ("F32", shape) for name, (_, shape) in TENSORS.items()}), ""),
        (offered(**{"model.layers.0.rotary_emb.inv_freq": ("F32", (2,))}), ""),
        (PolicyShape(config={"model_type": "qwen3"}, tensors=TENSORS), ""),
    ],
)
def test_the_first_difference_is_named_and_what_a_server_takes_is_none(
    other: PolicyShape, sentence: str
) -> None:
    found = difference(SERVED, other)
    assert sentence in found if sentence and found else (found, sentence) == (None, "")


@pytest.mark.parametrize("said", [True, None], ids=["config says tied", "config says nothing"])
def test_a_tied_output_layer_may_be_written_or_not(said: bool | None) -> None:
    config = {**CONFIG, "tie_word_embeddings": said}
    if said is None:
        del config["tie_word_embeddings"]
    without = {name: tensor for name, tensor in TENSORS.items() if name != HEAD}
    lean = PolicyShape(config=config, tensors=without)
    whole = PolicyShape(config=config, tensors=TENSORS)
    assert difference(lean, whole) is None
    assert (difference(whole, lean) is None) is (said is True)
    nested = PolicyShape(config={"text_config": {"tie_word_embeddings": True}}, tensors=TENSORS)
    assert difference(nested, PolicyShape(config=nested.config, tensors=without)) is None


def test_shards_of_a_folder_are_one_policy(tmp_path: Path) -> None:
    """How tensors are divided among files is no difference."""

    def write(folder: Path, *files: dict[str, tuple[str, tuple[int, ...]]]) -> Path:
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
        for number, tensors in enumerate(files):
            header = {
                name: {"dtype": dtype, "shape": list(shape), "data_offsets": [0, 0]}
                for name, (dtype, shape) in tensors.items()
            }
            text = json.dumps(header).encode()
            file = folder / f"model-{number}.safetensors"
            file.write_bytes(struct.pack("<Q", len(text)) + text)
        return folder

    one = check_policy_folder(write(tmp_path / "one", TENSORS))
    parts = [{name: tensor} for name, tensor in TENSORS.items()]
    assert check_policy_folder(write(tmp_path / "many", *parts)) == one == SERVED


@pytest.mark.parametrize(
    ("name", "dtype", "shape", "sentence"),
    [
        (HEAD, "float32", (8, 4), None),
        (HEAD, "bfloat16", (4, 8), "has the shape [4, 8], the samplers serve [8, 4]"),
        (HEAD, "float8_e4m3fn", (8, 4), "of type float8_e4m3fn, the samplers serve"),
        (HEAD, "BF16", (8, 4), "of type 'BF16': the types are bfloat16"),
        ("lm_head", "bfloat16", (8, 4), "has no tensor lm_head"),
    ],
)
def test_a_tensor_that_is_broadcast(
    name: str, dtype: str, shape: tuple[int, ...], sentence: str | None
) -> None:
    found = misfit(SERVED, name, dtype, shape)
    assert found is None if sentence is None else sentence in (found or "")


def test_what_makes_a_policy_whole() -> None:
    names = set(TENSORS)
    assert missing(SERVED, names) == []
    assert missing(SERVED, names - {HEAD}) == [HEAD]
    buffer = {"model.layers.0.rotary_emb.inv_freq": ("F32", (2,))}
    tied = offered({"tie_word_embeddings": True}, **buffer)
    assert missing(tied, names - {HEAD}) == []
    assert missing(tied, {HEAD}) == [EMBED, LAYER]
