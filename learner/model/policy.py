"""The policy in training: Megatron's model, its data-parallel wrapper and its optimizer.

Also the frozen copy that serves as reference. The output layer answers with log-probs of the tokens
that a micro-batch asks for (see `head`), not with logits.

Does not know where batches come from or what the loss is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from megatron.core.distributed import (
    DistributedDataParallel,
    DistributedDataParallelConfig,
    finalize_model_grads,
)
from megatron.core.optimizer import ChainedOptimizer, OptimizerConfig, get_megatron_optimizer
from megatron.core.tensor_parallel import set_defaults_if_not_set_tensor_model_parallel_attributes
from megatron.core.transformer.module import Float16Module

from learner.config.weights import Lora, Optimizer, Parallel, Recompute, Vision
from learner.errors import ModelError
from learner.maths.schedule import fraction
from learner.model import bridge as bridges
from learner.model import gradient_norm, muon, spec
from learner.model.experts import has_experts
from learner.model.head import Head
from learner.model.lora import Adapters, Without, hidden
from learner.ranks import parallel

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(slots=True, kw_only=True)
class Model:
    """A forward-only model on this rank: `network` is what the schedule calls.

    sight: of a policy that reads images, where the embedding is; None anywhere else. vision: what
    becomes of its tower.
    """

    bridge: Any
    network: Any
    head: Head
    source: Path
    sight: Any = None
    vision: Vision = "frozen"

    @property
    def bare(self) -> Any:
        """The GPTModel under the wrappers."""
        inner = self.network
        while hasattr(inner, "module"):
            inner = inner.module
        return inner

    @property
    def config(self) -> Any:
        return self.bare.config

    @property
    def adapters(self) -> Adapters | None:
        """What is trained in place of the weights, if anything is."""
        return getattr(self.bare, "adapters", None)

    @property
    def shape(self) -> dict[str, int | bool | str]:
        """What a checkpoint must agree with."""
        hf = self.bridge.hf_config
        seeing = {"vision": self.vision} if self.bridge.whole is not None else {}
        mixture: dict[str, int | bool | str] = {}
        if has_experts(hf):
            mixture = {
                "experts": int(hf.num_experts),
                "expert_intermediate": int(hf.moe_intermediate_size),
                "experts_per_token": int(hf.num_experts_per_tok),
            }
        return {
            "architecture": str(hf.model_type),
            "vocabulary": int(hf.vocab_size),
            "hidden": int(hf.hidden_size),
            "layers": int(hf.num_hidden_layers),
            "heads": int(hf.num_attention_heads),
            "groups": int(hf.num_key_value_heads),
            "intermediate": int(hf.intermediate_size),
            "tied": bool(hf.tie_word_embeddings),
            **mixture,
            **seeing,
            **(self.adapters.shape if self.adapters is not None else {}),
        }


@dataclass(slots=True, kw_only=True)
class Policy(Model):
    """The model in training."""

    optimizer: Any
    settings: Optimizer
    peaks: list[float]

    def apply_settings(self) -> None:
        """The recipe's betas and weight decay, in place of a checkpoint's or Megatron's defaults.

        Norms and biases have no weight decay: Megatron marks their groups, and leaves it to a
        scheduler that is not used here to act on the mark. Rates come with `set_rate`.
        """
        for group in self.optimizer.param_groups:
            if "betas" in group:  # Adam's; Muon has none, and no decay
                group["betas"] = (self.settings.beta1, self.settings.beta2)
                group["weight_decay"] = self.settings.weight_decay * group["wd_mult"]

    def set_rate(self, step: int, steps: int) -> float:
        """Sets every group's rate for update `step` (from 0) of `steps`; returns Adam's."""
        share = fraction(self.settings, step, steps)
        for group, peak in zip(self.optimizer.param_groups, self.peaks, strict=True):
            group["lr"] = share * peak
        return share * self.settings.lr

    def zero_grad(self) -> None:
        self.network.zero_grad_buffer()
        self.optimizer.zero_grad()

    def gradient_buffers(self) -> list[torch.Tensor]:
        """What the last backward left, to be changed in place; a rank's own part."""
        every = [*self.network.buffers, *self.network.expert_parallel_buffers]
        return [buffer.grad_data for buffer in every]

    def gradient_norm(self) -> float:
        """Global norm of the last backward's gradients; NaN on all ranks if not finite on one."""
        self.optimizer.prepare_grads()
        norm = gradient_norm.global_norm(self.optimizer.chained_optimizers)
        return math.nan if parallel.on_any(not math.isfinite(norm)) else norm

    def update(self, norm: float) -> None:
        """One optimizer step on the gradients whose norm `gradient_norm` found, clipped."""
        if not math.isfinite(norm):
            raise ValueError(f"gradients with a norm of {norm} move no weights")
        for part in self.optimizer.chained_optimizers:
            if parameters := part.get_parameters():
                gradient_norm.clip(parameters, self.settings.clip, norm)
        self.optimizer.step_with_ready_grads()

    def begun_with(self) -> Model | None:
        """The frozen weights for scoring, in no memory of their own; None without adapters."""
        if self.adapters is None:
            return None
        return Model(
            bridge=self.bridge,
            network=Without(self.network.module, self.adapters),
            head=self.head,
            sight=self.sight,
            source=self.source,
        )

    def save(self, folder: Path) -> None:
        """Leaves a complete Hugging Face folder (see `bridge.save_folder`)."""
        bridges.save_folder(self.bridge, self.bare, self.source, folder)


def load_policy(
    folder: Path,
    settings: Optimizer,
    precision: str,
    lora: Lora | None = None,
    *,
    ways: Parallel | None = None,
    recompute: Recompute = "none",
    vision: Vision = "frozen",
) -> Policy:
    """The folder's model with a fresh optimizer. ModelError when it cannot be trained.

    lora: adapters are trained in place of the weights. ways: switches of the recipe's [parallel];
    its sizes are those that `parallel.ranks` was given. vision: what becomes of the tower of a
    policy that reads images.
    """
    ways = ways or Parallel()
    if ways.distributed_optimizer and not spec.has_transformer_engine():
        raise ModelError(
            "parallel.distributed_optimizer needs TransformerEngine: without it Megatron does not "
            "read the optimizer's state back from a checkpoint. Install transformer_engine, or set "
            "it to false"
        )
    bridge = bridges.open_bridge(
        folder, DTYPES[precision], sequence=ways.sequence, recompute=recompute
    )
    if vision == "trained" and bridge.whole is None:
        raise ModelError(f"{folder} reads no images: leave learner.vision = 'trained' out")
    if lora is not None and bridge.whole is not None:
        raise ModelError(f"{folder} reads images, lora adapts policies of text alone: leave it out")
    head, sight, network = _network(bridge, folder, lora, vision)
    network.train()
    wrapped = DistributedDataParallel(
        bridge.config,
        DistributedDataParallelConfig(
            grad_reduce_in_fp32=True,
            use_distributed_optimizer=ways.distributed_optimizer,
            overlap_grad_reduce=False,
        ),
        network,
    )
    config = OptimizerConfig(
        optimizer="adam",
        lr=settings.lr,
        min_lr=0.0,
        weight_decay=settings.weight_decay,
        adam_beta1=settings.beta1,
        adam_beta2=settings.beta2,
        clip_grad=settings.clip,
        bf16=precision == "bfloat16",
        params_dtype=DTYPES[precision],
        use_distributed_optimizer=ways.distributed_optimizer,
    )
    if settings.kind == "muon":
        with muon.hidden_from_adam(wrapped) as matrices:
            adam = get_megatron_optimizer(config, [wrapped], use_gloo_process_groups=False)
        optimizer = ChainedOptimizer(
            [*adam.chained_optimizers, muon.wrapped(matrices, settings.muon_lr, config)]
        )
        peaks = [settings.lr] * len(adam.param_groups) + [settings.muon_lr]
    else:
        optimizer = get_megatron_optimizer(config, [wrapped], use_gloo_process_groups=False)
        peaks = [settings.lr] * len(optimizer.param_groups)
    complete_state(optimizer)
    bridge.config.finalize_model_grads_func = finalize_model_grads
    bridge.config.grad_scale_func = optimizer.scale_loss
    policy = Policy(
        bridge=bridge,
        network=wrapped,
        head=head,
        sight=sight,
        vision=vision,
        source=folder,
        optimizer=optimizer,
        settings=settings,
        peaks=peaks,
    )
    policy.apply_settings()
    return policy


def load_frozen(folder: Path, precision: str) -> Model:
    """The folder's model for scoring only."""
    bridge = bridges.open_bridge(folder, DTYPES[precision], sequence=None)
    head, sight, network = _network(bridge, folder)
    network.requires_grad_(False)
    network.eval()
    return Model(bridge=bridge, network=network, head=head, sight=sight, source=folder)


@contextmanager
def lent_weights(model: Model, folder: Path) -> Iterator[None]:
    """The folder's weights in the place of the model's while the block runs.

    The model's own wait in the host's memory, and are back to the bit whatever happens in between.
    """
    own = [p.detach().to("cpu", copy=True) for p in model.bare.parameters()]
    adapters = model.adapters
    try:
        with hidden(model.bare):
            bridges.load_weights(model.bridge, model.bare, folder)
        if adapters is not None:
            adapters.on = False  # a published folder has them in its weights
        yield
    finally:
        if adapters is not None:
            adapters.on = True
        with torch.no_grad():
            for parameter, value in zip(model.bare.parameters(), own, strict=True):
                parameter.copy_(value)


def complete_state(optimizer: Any) -> None:
    """Gives every weight its optimizer state before the first update.

    So a checkpoint has one form whether or not an update has happened; Megatron leaves out a
    step count of 0.
    """
    for part in optimizer.chained_optimizers:
        if part.init_state_fn is not None:
            part.init_state_fn(part.optimizer, part.config)
        if isinstance(part.optimizer, torch.optim.AdamW):
            for state in part.optimizer.state.values():
                state.setdefault("step", torch.tensor(0.0))


def _network(
    bridge: Any, folder: Path, lora: Lora | None = None, vision: Vision = "frozen"
) -> tuple[Head, Any, Any]:
    """(output layer, where images come in, what the schedule calls)"""
    network: Any = bridges.new_model(bridge, folder)
    sight = None
    if hasattr(network, "visual"):
        from learner.vision.pixels import Pixels  # text policies do without their imports
        from learner.vision.tower import Sight

        network.visual.requires_grad_(vision == "trained")
        sight = Sight(network.embedding, network.visual, Pixels(folder))
    if lora is not None:
        network.adapters = Adapters(network, bridge.hf_config, lora)
    for parameter in network.parameters():
        set_defaults_if_not_set_tensor_model_parallel_attributes(parameter)
    head = Head(network.output_layer if parallel.is_last_stage() else None)
    if bridge.dtype is torch.bfloat16:
        return head, sight, Float16Module(bridge.config, network)
    return head, sight, network
