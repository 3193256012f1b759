"""Hugging Face folders in and out.

Owns the mapping of a Qwen2, Qwen3, Qwen3-MoE or Llama folder to Megatron's GPTModel and back. Owns
also the folder that a run leaves: weights, configuration, tokenizer and chat template, as
transformers and SGLang load it. All files but the weights are copied from the source folder byte
for byte, apart from the configuration's dtype. The decoder of a Qwen2.5-VL is a Qwen2's; its tower
is beside it.

Does not know optimizers or training. Never reads the tokenizer files that it copies.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from learner import disk
from learner.config.weights import Fusions, Recompute
from learner.errors import ModelError
from learner.model import experts, lora, spec
from learner.model.architectures import bridge_classes, read_config
from learner.model.kernels import fusions
from learner.model.kernels.recompute import recompute_selectively
from learner.model.packed import PackedRotary
from learner.model.settings import check_settings, frequencies
from learner.ranks import device, parallel
from learner.vision.folder import RELEASED, Names, names_in, reads_images, text_config
from toolwright.model.model_folder import TEMPLATE_FOLDER, ModelFolderError
from toolwright.model.weights import check_weights
from toolwright.recipe import (
    ARCHITECTURES,
    TRAINED_VISION_ARCHITECTURES,
    VISION_ARCHITECTURES,
)

SHARD_BYTES = 5 << 30
RECOMPUTE: dict[Recompute, dict[str, Any]] = {
    "none": {},
    "selective": {"recompute_granularity": "selective", "recompute_modules": ["layernorm"]},
    "full": {
        "recompute_granularity": "full",
        "recompute_method": "uniform",
        "recompute_num_layers": 1,
    },
}
_CLASSES = bridge_classes()
_DECODERS = {name: _CLASSES["qwen2"] for name in TRAINED_VISION_ARCHITECTURES}
"""Decoders of policies that read images."""
_WEIGHTS = (
    *(".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".index.json"),
    *(".h5", ".msgpack", ".onnx", ".onnx_data", ".ot", ".npz", ".tflite", ".mlmodel"),
    *(".gguf", ".ggml", ".llamafile"),
)
"""Suffixes of weight files of every framework. Some programs would load old weights beside new."""


def open_bridge(
    folder: Path,
    dtype: torch.dtype,
    *,
    sequence: bool | None = False,
    recompute: Recompute = "none",
    fused: Fusions = "off",
) -> Any:
    """The mbridge bridge for a policy folder. Raises ModelError if it cannot be trained here.

    sequence, recompute: as in the recipe. fused: the recipe's fusions. sequence None: only if the
    ranks need it, which is with experts (a micro-batch's tokens divide over them in any case).

    `bridge.hf_config` is the decoder's configuration. `bridge.whole` is the whole configuration of
    a policy that reads images, None for text. `bridge.names` has the folder's names of tensors,
    `bridge.fusions` the selected fusions.
    """
    if not (folder / "config.json").is_file():
        raise ModelError(
            f"no policy at {folder}: set policy.model to a local Hugging Face folder with a "
            "config.json"
        )
    config = read_config(folder)
    kind = config.model_type
    trained = (*ARCHITECTURES, *TRAINED_VISION_ARCHITECTURES)
    if kind not in trained:
        sampled = ": it can be sampled and evaluated, not trained here"
        raise ModelError(
            f"{folder} is a {kind!r} model{sampled if kind in VISION_ARCHITECTURES else ''}; the "
            f"learner trains {', '.join(trained)}"
        )
    if sequence is None:
        sequence = experts.has_experts(config) and parallel.tensor_size() > 1
    whole = None
    if reads_images(config):
        whole, config = config, text_config(config, folder)
        if sequence:
            raise ModelError(
                f"{folder} reads images, and a rank's tokens could end inside of one: set "
                "parallel.sequence = false"
            )
        if parallel.context_size() > 1:
            raise ModelError(
                f"{folder} reads images, and each rank would have a part of one: set "
                "parallel.context = 1"
            )
    if config.vocab_size % parallel.tensor_size():
        raise ModelError(
            f"the vocabulary of {config.vocab_size} does not divide over parallel.tensor = "
            f"{parallel.tensor_size()}: set a divisor of it"
        )
    experts.check_layout(config, folder, sequence=sequence)
    if config.num_hidden_layers % parallel.stages():
        raise ModelError(
            f"{config.num_hidden_layers} layers do not divide over parallel.pipeline = "
            f"{parallel.stages()}: set a divisor of it"
        )
    if not any(folder.glob("*.safetensors")):
        raise ModelError(f"{folder} has no *.safetensors weights: convert the policy's weights")
    check_settings(config, folder)
    try:
        check_weights(folder)
    except ModelFolderError as error:
        raise ModelError(str(error)) from error
    bridge = _adapted({**_CLASSES, **_DECODERS}[kind])(config, dtype=dtype)
    bridge.whole = whole
    bridge.names = names_in(folder) if whole is not None else RELEASED
    bridge.fusions = fusions.select(fused, images=whole is not None)
    scaled = frequencies(config)
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    bridge.set_extra_args(
        # A factor on queries and on keys is its square on their product.
        softmax_scale=scaled[1] ** 2 / head**0.5 if scaled is not None else None,
        sequence_parallel=sequence,
        attention_dropout=0.0,
        # Every micro-batch has a length of its own, which stages send to each other.
        variable_seq_lengths=parallel.stages() > 1,
        use_cpu_initialization=not device.has_cuda(),
        **({} if spec.has_transformer_engine() else {"persist_layer_norm": False}),
        **RECOMPUTE[recompute],
        **bridge.fusions.options,
        **experts.settings(config, fused=spec.has_transformer_engine()),
    )
    return bridge


def new_model(bridge: Any, folder: Path) -> torch.nn.Module:
    """A GPTModel with the folder's weights, on this rank's device, in the bridge's dtype.

    A policy that reads images has its tower as `visual`, on the stage of the embedding.
    """
    model = bridge._model_provider([])(
        pre_process=parallel.is_first_stage(), post_process=parallel.is_last_stage()
    )
    model.rotary_pos_emb = PackedRotary(
        bridge.config.kv_channels,
        rotary_percent=1.0,
        rotary_base=bridge._get_gptmodel_args()["rotary_base"],
        use_cpu_initialization=not device.has_cuda(),
    )
    model = model.to(device.device())
    if bridge.whole is not None:
        model.rotary_pos_emb.sections = tuple(bridge.hf_config.rope_parameters["mrope_section"])
        if parallel.is_first_stage():
            from learner.vision.tower import new_tower  # text policies do not need its imports

            model.visual = new_tower(bridge.whole, bridge.dtype, device.device())
    scaled = frequencies(bridge.hf_config)
    if scaled is not None:
        model.rotary_pos_emb.inv_freq = scaled[0].to(device.device())
    experts.mark_expert_weights(model)
    if bridge.config.recompute_granularity == "selective":
        recompute_selectively(model)
    load_weights(bridge, model, folder)
    return model  # type: ignore[no-any-return]


def load_weights(bridge: Any, model: torch.nn.Module, folder: Path) -> None:
    """Copies the folder's weights into the model, each rank its shard."""
    try:
        with lora.detached(model, "visual") as tower, torch.no_grad():
            bridge.load_weights([experts.Grouped(model)], str(folder))
        if tower is not None:
            from learner.vision.tower import load_tower

            load_tower(tower, folder, names_in(folder))
    except (ValueError, KeyError) as error:
        raise ModelError(f"weights of {folder} do not fit its config.json: {error}") from error


def named_weights(bridge: Any, model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """(Hugging Face name, whole tensor) one after the other; every rank must drain it.

    Adapters are merged. Call it under torch.no_grad: the tensors are views of the live parameters.
    """
    with lora.detached_adapters(model) as adapters, lora.detached(model, "visual") as tower:
        for name, tensor in bridge.export_weights([experts.Grouped(model)]):
            whole = tensor if adapters is None else adapters.merged(name, tensor)
            yield bridge.names.of_text(name), whole
        if tower is not None:
            for name, tensor in tower.named_parameters(prefix=bridge.names.tower.rstrip(".")):
                yield name, tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFiles:
    """Contents of a published folder."""

    weights: Mapping[str, torch.Tensor]
    """Tensors in host memory, under Hugging Face names."""
    adapters: lora.SavedAdapters | None
    """Adapters under PEFT's names; None without adapters."""
    source: Path
    """Folder that gives all other files."""
    dtype: torch.dtype


def save_folder(bridge: Any, model: torch.nn.Module, source: Path, folder: Path) -> None:
    """Writes `folder` completely or not at all. All ranks call it; rank 0 writes.

    source: gives all files but the weights. See `write_folder`.
    """
    with torch.no_grad():  # mbridge broadcasts the very parameters
        weights = {
            name: tensor.cpu().contiguous()
            for name, tensor in named_weights(bridge, model)
            if parallel.is_first()
        }
    if parallel.is_first():
        with lora.detached_adapters(model) as adapters:
            own = adapters.saved() if adapters is not None else None
        write_folder(
            PolicyFiles(weights=weights, adapters=own, source=source, dtype=bridge.dtype), folder
        )
    parallel.barrier()


def write_folder(saved: PolicyFiles, folder: Path) -> None:
    """Writes `folder` as `_complete` does. Adapters are merged into its weights, and separate in a
    folder inside."""
    with _complete(folder) as unfinished:
        _save_weights(saved.weights, unfinished)
        _copy_the_rest(saved.source, unfinished, saved.dtype)
        if saved.adapters is not None:
            lora.write(saved.adapters, unfinished / lora.FOLDER, saved.source)


def write_adapters(saved: lora.SavedAdapters, source: Path, folder: Path) -> None:
    """Writes PEFT's two files into `folder`, as `_complete` does. source: folder of the frozen
    weights."""
    with _complete(folder) as unfinished:
        lora.write(saved, unfinished, source)


@contextmanager
def _complete(folder: Path) -> Iterator[Path]:
    """Yields a folder that becomes `folder`, completely or not at all. Replaces an existing folder
    of that name.

    The folder is on disk at the end: a power cut does not leave it empty.
    """
    for left in folder.parent.glob(f".{folder.name}.*"):
        shutil.rmtree(left)  # from a process that died here
    unfinished = folder.with_name(f".{folder.name}.{os.getpid()}")
    unfinished.mkdir(parents=True)
    yield unfinished
    disk.flush_tree(unfinished)
    if folder.exists():
        old = folder.with_name(f".{folder.name}.{os.getpid()}.old")
        folder.rename(old)
        disk.rename_flushed(unfinished, folder)
        shutil.rmtree(old)
    else:
        disk.rename_flushed(unfinished, folder)
    disk.flush(folder.parent.parent)  # the folder of policies may be new


def _save_weights(weights: Mapping[str, torch.Tensor], folder: Path) -> None:
    shards: list[dict[str, torch.Tensor]] = [{}]
    size = 0
    for name, tensor in weights.items():
        if shards[-1] and size + tensor.nbytes > SHARD_BYTES:
            shards.append({})
            size = 0
        shards[-1][name] = tensor
        size += tensor.nbytes
    if len(shards) == 1:
        save_file(shards[0], folder / "model.safetensors", metadata={"format": "pt"})
        return
    index: dict[str, str] = {}
    for number, shard in enumerate(shards, start=1):
        file = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        save_file(shard, folder / file, metadata={"format": "pt"})
        index.update(dict.fromkeys(shard, file))
    total = sum(tensor.nbytes for tensor in weights.values())
    text = json.dumps({"metadata": {"total_size": total}, "weight_map": index})
    (folder / "model.safetensors.index.json").write_text(text, encoding="utf-8")


def _copy_the_rest(source: Path, folder: Path, dtype: torch.dtype) -> None:
    templates = source / TEMPLATE_FOLDER
    if templates.is_dir():
        (folder / TEMPLATE_FOLDER).mkdir()
        for file in sorted(templates.glob("*.jinja")):
            shutil.copyfile(file, folder / TEMPLATE_FOLDER / file.name)
    for file in sorted(source.iterdir()):
        if file.is_file() and not file.name.startswith(".") and not _holds_weights(file.name):
            shutil.copyfile(file, folder / file.name)
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    config.pop("torch_dtype", None)
    config["dtype"] = str(dtype).removeprefix("torch.")
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _holds_weights(name: str) -> bool:
    return name.lower().endswith(_WEIGHTS) or ".ckpt." in name or name == "adapter_config.json"


def _read_by_names(files: Any, names: Names) -> None:
    """Makes mbridge's reader accept the names of a text policy's tensors."""
    read = files.load_some_hf_weight

    def load(wanted: list[str]) -> dict[str, torch.Tensor]:
        found = read([names.of_text(name) for name in wanted])
        return {name: found[names.of_text(name)] for name in wanted}

    files.load_some_hf_weight = load


def _adapted(base: type[Any]) -> type[Any]:
    """mbridge's class for this machine's layers and this transformers' configuration."""
    mapping: dict[str, Any] = {}
    if not spec.has_transformer_engine():
        # TransformerEngine fuses the norms into the linear layers; the plain layers do not.
        mapping = {
            "_OTHER_MAPPING": {
                "input_layernorm.weight": ["model.layers.{layer_number}.input_layernorm.weight"]
            },
            "_MLP_MAPPING": {
                **base._MLP_MAPPING,
                "pre_mlp_layernorm.weight": [
                    "model.layers.{layer_number}.post_attention_layernorm.weight"
                ],
            },
        }

    class Adapted(base):  # type: ignore[misc]
        _DIRECT_MAPPING: dict[str, str]

        def _adjust_mapping_for_shared_weights(self) -> None:
            # mbridge ties embeddings for Qwen alone.
            if self.hf_config.tie_word_embeddings:
                self._DIRECT_MAPPING = {
                    **self._DIRECT_MAPPING,
                    "output_layer.weight": "model.embed_tokens.weight",
                }

        def _get_safetensor_io(self, weights_path: str) -> Any:
            found = super()._get_safetensor_io(weights_path)
            if self.whole is not None:
                _read_by_names(found, names_in(Path(weights_path)))
            return found

        def _get_transformer_layer_spec(self, vp_stage: int | None = None) -> Any:
            self.has_vp_stage = True
            return spec.layers(self.config, vp_stage)

        def _get_gptmodel_args(self) -> dict[str, Any]:
            hf = self.hf_config
            theta = getattr(hf, "rope_theta", None) or hf.rope_parameters["rope_theta"]
            return {
                "vocab_size": hf.vocab_size,
                "max_sequence_length": hf.max_position_embeddings,
                "position_embedding_type": "rope",
                "rotary_base": theta,
            }

    for name, value in mapping.items():
        setattr(Adapted, name, value)
    return Adapted
