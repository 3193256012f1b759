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
TENSORS = {
    "lm_head.weight": ("BF16", (8, 4)),
    "model.embed_tokens.weight": ("BF16", (8, 4)),
    "model.layers.0.q.weight": ("BF16", (4, 4)),
}
SERVED = PolicyShape(config=CONFIG, tensors=TENSORS)


def offered(config: dict[str, Any] | None = None, **tensors: Any) -> PolicyShape:
    """The served policy with changes; a tensor that is None is left out."""
    changed = {name.replace("__", "."): value for name, value in tensors.items()}
    found = {k: v for k, v in {**TENSORS, **changed}.items() if v is not None}
    return PolicyShape(config={**CONFIG, **(config or {})}, tensors=found)


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        (
            offered(model__layers__0__q__weight=("BF16", (4, 8))),
            "its tensor model.layers.0.q.weight has the shape [4, 8], the samplers serve [4, 4]",
        ),
        (offered(model__layers__0__q__weight=None), "has no tensor model.layers.0.q.weight, "),
        (offered(model__layers__0__k__weight=("BF16", (4, 4))), "a tensor model.layers.0.k"),
        (offered(model__layers__0__q__weight=("F8_E4M3", (4, 4))), "is of type F8_E4M3"),
        (offered(lm_head__weight=None), "has no tensor lm_head.weight"),
        (offered({"rope_theta": 5000.0}), "rope_theta = 5000.0, the samplers serve 10000.0"),
        (offered({"tie_word_embeddings": True}), "tie_word_embeddings = True"),
        (offered({"rope_scaling": None}), "rope_scaling = None"),
        (
            offered({"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}),
            "rope_scaling.rope_type = 'yarn'",
        ),
    ],
)
def test_the_first_difference_is_named(other: PolicyShape, sentence: str) -> None:
    assert sentence in str(difference(SERVED, other))


@pytest.mark.parametrize(
    "other",
    [
        offered({"dtype": "float32", "torch_dtype": "float32", "transformers_version": "9"}),
        offered({"eos_token_id": 5, "use_cache": True, "a_newer_key": 1}),
        offered(
            **{name.replace(".", "__"): ("F32", shape) for name, (_, shape) in TENSORS.items()}
        ),
        offered(model__layers__0__self_attn__rotary_emb__inv_freq=("F32", (2,))),
        PolicyShape(config={"model_type": "qwen3"}, tensors=TENSORS),
    ],
    ids=["precision", "bookkeeping", "float32", "old buffers", "few keys"],
)
def test_what_a_server_takes_is_no_difference(other: PolicyShape) -> None:
    assert difference(SERVED, other) is None


@pytest.mark.parametrize("said", [True, None], ids=["config says tied", "config says nothing"])
def test_a_tied_output_layer_may_be_written_or_not(said: bool | None) -> None:
    config = {k: v for k, v in CONFIG.items() if k != "tie_word_embeddings"}
    if said is not None:
        config["tie_word_embeddings"] = said
    without = {name: tensor for name, tensor in TENSORS.items() if name != "lm_head.weight"}
    lean = PolicyShape(config=config, tensors=without)
    whole = PolicyShape(config=config, tensors=TENSORS)
    assert difference(lean, whole) is None
    assert (difference(whole, lean) is None) is (said is True)
    nested = PolicyShape(config={"text_config": {"tie_word_embeddings": True}}, tensors=TENSORS)
    assert difference(nested, PolicyShape(config=nested.config, tensors=without)) is None


def test_shards_of_a_folder_are_one_policy(tmp_path: Path) -> None:
    """How tensors are divided among files is nobody's matter."""

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
        ("lm_head.weight", "float32", (8, 4), None),
        ("lm_head.weight", "bfloat16", (8, 4), None),
        ("lm_head.weight", "bfloat16", (4, 8), "has the shape [4, 8], the samplers serve [8, 4]"),
        ("lm_head.weight", "float8_e4m3fn", (8, 4), "of type float8_e4m3fn, the samplers serve"),
        ("lm_head.weight", "BF16", (8, 4), "of type 'BF16': the types are bfloat16"),
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
    assert missing(SERVED, names - {"lm_head.weight"}) == ["lm_head.weight"]
    tied = PolicyShape(
        config={**CONFIG, "tie_word_embeddings": True},
        tensors={**TENSORS, "model.layers.0.rotary_emb.inv_freq": ("F32", (2,))},
    )
    assert missing(tied, names - {"lm_head.weight"}) == []
    assert missing(tied, {"lm_head.weight"}) == [
        "model.embed_tokens.weight",
        "model.layers.0.q.weight",
    ]
