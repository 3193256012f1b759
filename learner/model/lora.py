"""Low-rank adapters (LoRA; Hu et al. 2021, section 4.1): the network is frozen, they are trained.

A projection with weight W computes W x + (alpha / rank) B A x.

Invariants
- Every projection of the Hugging Face folder has an A and a B of its own, as PEFT reads it.
  Megatron joins some of them in one matrix (q, k, v; gate, up).
- Fresh adapters change nothing: B is zero.
- Adapters are beside the network's layers, not in them: names of weights in a folder are the same
  with and without adapters.

Whole matrices only: no tensor parallelism.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

from learner.config.weights import Lora
from learner.errors import ModelError
from learner.model.experts import has_experts
from learner.ranks import parallel

FOLDER = "adapter"
"""Name of the subfolder of a published folder that has the adapter alone, as PEFT reads it."""

CONFIG, TENSORS = "adapter_config.json", "adapter_model.safetensors"

_ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
_STEMS = {
    **dict.fromkeys(_ATTENTION, "self_attn"),
    **dict.fromkeys(("gate_proj", "up_proj", "down_proj"), "mlp"),
}


class LowRank(torch.nn.Module):
    """x [.., in] -> B A x [.., out]. A [rank, in] begins as PEFT's does, B [out, rank] at zero."""

    def __init__(self, size: tuple[int, int], rank: int, like: torch.Tensor) -> None:
        super().__init__()
        a = torch.empty(rank, size[0])
        torch.nn.init.kaiming_uniform_(a, a=math.sqrt(5))
        self.a = torch.nn.Parameter(a.to(like))
        self.b = torch.nn.Parameter(torch.zeros(size[1], rank).to(like))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(F.linear(x, self.a), self.b)


class Adapters(torch.nn.Module):
    """All adapters of a network.

    `on` is whether they count, `own` has them by layer and projection, `base` is a fingerprint of
    the frozen weights.
    """

    def __init__(self, network: Any, config: Any, lora: Lora) -> None:
        """Freezes the network (a GPTModel of the Hugging Face `config`) and hooks its layers.

        Raises ModelError if the network cannot have these adapters.
        """
        super().__init__()
        if parallel.tensor_size() > 1:
            raise ModelError("lora adapts whole matrices: set parallel.tensor = 1")
        if has_experts(config) and not set(lora.targets) <= set(_ATTENTION):
            raise ModelError(
                f"lora adapts the attention of a mixture of experts, not its experts: set "
                f"lora.targets = {list(_ATTENTION)}"
            )
        self.lora = lora
        self.on = True
        self.base = _fingerprint(network)
        self._groups = int(config.num_key_value_heads)
        self.sizes = _sizes(config)
        network.requires_grad_(False)
        if network.config.recompute_granularity is not None:
            network.embedding.register_forward_hook(_with_gradient)
        like = next(network.parameters())
        self.own: list[dict[str, LowRank]] = [
            {name: LowRank(self.sizes[name], lora.rank, like) for name in lora.targets}
            for _ in network.decoder.layers
        ]
        self.layers = torch.nn.ModuleList(torch.nn.ModuleDict(own) for own in self.own)
        for layer, own in zip(network.decoder.layers, self.own, strict=True):
            for path, names in _MATRICES.items():
                if any(name in own for name in names):
                    hook = partial(self._add, own, names)
                    layer.get_submodule(path).register_forward_hook(hook)

    @property
    def scale(self) -> float:
        return self.lora.alpha / self.lora.rank

    @property
    def shape(self) -> dict[str, int | bool | str]:
        """Settings that a checkpoint must agree with."""
        targets = " ".join(self.lora.targets)
        return {
            "lora": f"rank {self.lora.rank}, alpha {self.lora.alpha:g}, {targets}",
            "base": self.base,
        }

    def merged(self, name: str, weight: torch.Tensor) -> torch.Tensor:
        """The weight of that Hugging Face name with its adapter merged, rounded once."""
        parts = name.split(".")
        if len(parts) < 4 or not parts[2].isdecimal():
            return weight
        own = self.own[int(parts[2])]
        if parts[-1] != "weight" or parts[-2] not in own:
            return weight
        low = own[parts[-2]]
        whole: torch.Tensor = weight.float() + self.scale * (low.b.float() @ low.a.float())
        return whole.to(weight.dtype)

    def saved(self) -> SavedAdapters:
        """A copy of the adapters in host memory."""
        tensors = {
            name: tensor.detach().to("cpu", copy=True).contiguous()
            for name, tensor in self._by_name()
        }
        return SavedAdapters(tensors=tensors, lora=self.lora)

    def load(self, folder: Path) -> None:
        """Copies the adapters of a folder that `write` left. Raises ModelError if they differ in
        names or shapes."""
        stored = load_file(folder / TENSORS)
        own = dict(self._by_name())
        if {name: t.shape for name, t in stored.items()} != {n: t.shape for n, t in own.items()}:
            raise ModelError(f"{folder} holds other adapters than learner.lora describes")
        with torch.no_grad():
            for name, tensor in own.items():
                tensor.copy_(stored[name])

    def _by_name(self) -> Iterator[tuple[str, torch.Tensor]]:
        """(PEFT's name, tensor) of every A and B."""
        for number, own in enumerate(self.own):
            for name, low in own.items():
                stem = f"base_model.model.model.layers.{number}.{_STEMS[name]}.{name}"
                yield f"{stem}.lora_A.weight", low.a
                yield f"{stem}.lora_B.weight", low.b

    def _add(
        self,
        own: Mapping[str, LowRank],
        names: tuple[str, ...],
        layer: Any,
        args: tuple[Any, ...],
        output: Any,
    ) -> Any:
        if not self.on:
            return output
        out, bias = output
        x = args[0]
        if hasattr(layer, "layer_norm_weight"):  # TransformerEngine's layer takes x before its norm
            x = F.rms_norm(x, (x.shape[-1],), layer.layer_norm_weight, layer.eps)
        added = [
            own[name](x) if name in own else x.new_zeros(*x.shape[:-1], self.sizes[name][1])
            for name in names
        ]
        return out + self.scale * self._joined(added), bias

    def _joined(self, parts: list[torch.Tensor]) -> torch.Tensor:
        """Joins outputs as Megatron joins their matrices: queries, keys, values by head groups."""
        if len(parts) == 3:
            parts = [part.reshape(*part.shape[:-1], self._groups, -1) for part in parts]
            return torch.cat(parts, dim=-1).flatten(-2)
        return torch.cat(parts, dim=-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedAdapters:
    """Adapters under PEFT's names, in host memory."""

    tensors: Mapping[str, torch.Tensor]
    lora: Lora


def write(saved: SavedAdapters, folder: Path, base: Path) -> None:
    """Writes PEFT's two files into a folder without them. base: folder of the frozen weights."""
    folder.mkdir(exist_ok=True)
    save_file(dict(saved.tensors), folder / TENSORS, metadata={"format": "pt"})
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": str(base),
        "r": saved.lora.rank,
        "lora_alpha": saved.lora.alpha,
        "lora_dropout": 0.0,
        "target_modules": list(saved.lora.targets),
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
    }
    (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def is_adapter(folder: Path) -> bool:
    """Whether the folder holds adapters alone."""
    return (folder / CONFIG).is_file() and not (folder / "config.json").is_file()


_MATRICES = {
    "self_attention.linear_qkv": ("q_proj", "k_proj", "v_proj"),
    "self_attention.linear_proj": ("o_proj",),
    "mlp.linear_fc1": ("gate_proj", "up_proj"),
    "mlp.linear_fc2": ("down_proj",),
}
"""Megatron's matrices in a layer, and the projections in each."""


class WithoutAdapters(torch.nn.Module):
    """The network without its adapters: the start of training, in the same memory."""

    def __init__(self, network: Any, adapters: Adapters) -> None:
        super().__init__()
        self.module = network
        self._adapters = [adapters]  # in a list: they are modules of the network already

    def forward(self, *args: Any, **options: Any) -> Any:
        (adapters,) = self._adapters
        adapters.on = False
        try:
            return self.module(*args, **options)
        finally:
            adapters.on = True


def detached_adapters(network: Any) -> AbstractContextManager[Adapters | None]:
    """Yields the network's adapters, None without; the network has no such module inside."""
    return detached(network, "adapters")


@contextmanager
def detached(network: Any, name: str) -> Iterator[Any]:
    """Yields the network's module of that name, None without; mbridge does not see it inside."""
    found = network._modules.pop(name, None)
    try:
        yield found
    finally:
        if found is not None:
            setattr(network, name, found)


def _with_gradient(_embedding: Any, _args: Any, hidden: torch.Tensor) -> torch.Tensor:
    """Frozen embeddings [s, b, h] as an input of a recomputed layer.

    Megatron's checkpoint of a layer passes no gradient on if no input of the layer has one.
    """
    return hidden.requires_grad_() if torch.is_grad_enabled() else hidden


def _sizes(config: Any) -> dict[str, tuple[int, int]]:
    """(in, out) of each projection."""
    hidden_size, heads = int(config.hidden_size), int(config.num_attention_heads)
    head = int(getattr(config, "head_dim", None) or hidden_size // heads)
    queries, keys = heads * head, int(config.num_key_value_heads) * head
    inner = int(config.intermediate_size)
    return {
        "q_proj": (hidden_size, queries),
        "k_proj": (hidden_size, keys),
        "v_proj": (hidden_size, keys),
        "o_proj": (queries, hidden_size),
        "gate_proj": (hidden_size, inner),
        "up_proj": (hidden_size, inner),
        "down_proj": (inner, hidden_size),
    }


def _fingerprint(network: Any) -> str:
    """Fingerprint of the weights' bits, independent of the order of summation."""
    total = 0
    for number, parameter in enumerate(network.parameters(), start=1):
        kind = torch.int32 if parameter.element_size() == 4 else torch.int16
        total += number * int(parameter.detach().view(kind).sum(dtype=torch.int64))
    return f"{total % 2**64:016x}"
