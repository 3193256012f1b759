"""The policy in training: Megatron's model, its data-parallel wrapper and its optimizer.

Also the frozen copy that serves as reference. The output layer returns log-probs of a micro-batch's
targets (see `head`), not logits.

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

from learner.config.weights import Fusions, Lora, Optimizer, Parallel, Recompute, Vision
from learner.errors import ModelError
from learner.maths.schedule import fraction
from learner.model import bridge as bridges
from learner.model import gradient_norm, muon
from learner.model.experts import has_experts
from learner.model.head import Head
from learner.model.host_states import HostStates
from learner.model.lora import Adapters, WithoutAdapters, detached_adapters, is_adapter
from learner.ranks import device, parallel

BUCKET_NUMBERS: int | None = None
"""Size of what is exchanged at a time with `parallel.overlap`; None is Megatron's, 40 million
weights or more."""
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(slots=True, kw_only=True)
class Model:
    """A forward-only model on this rank."""

    bridge: Any
    network: Any
    """The module that the schedule calls."""
    head: Head
    source: Path
    image_embedding: Any = None
    """The `ImageEmbedding` of a policy that reads images, on the stage of the embedding."""
    vision: Vision = "frozen"
    """Whether the vision tower is trained."""

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
        """Adapters that are trained in place of the weights; None without adapters."""
        return getattr(self.bare, "adapters", None)

    @property
    def shape(self) -> dict[str, int | bool | str]:
        """Settings that a checkpoint must agree with."""
        hf = self.bridge.hf_config
        vision = {"vision": self.vision} if self.bridge.whole is not None else {}
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
            **vision,
            **(self.adapters.shape if self.adapters is not None else {}),
        }


@dataclass(slots=True, kw_only=True)
class Policy(Model):
    """The model in training."""

    optimizer: Any
    settings: Optimizer
    peaks: list[float]
    states: HostStates
    """Moves gradients and the optimizer's state out of the GPU's memory and back."""
    gather_pending: bool = False
    """Whether weights of other data-parallel ranks may be those before the last update."""

    def apply_settings(self) -> None:
        """The recipe's betas and weight decay, in place of a checkpoint's or Megatron's defaults.

        Norms and biases have no weight decay: Megatron marks their groups, and its scheduler, which
        is not used here, would apply the mark. `set_rate` sets the rates.
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
        """Gradients of the last backward, a rank's own part; they may be changed in place."""
        every = [*self.network.buffers, *self.network.expert_parallel_buffers]
        return [buffer.grad_data for buffer in every]

    def gradient_norm(self) -> float:
        """Global norm of the last backward's gradients; NaN on all ranks if infinite on one."""
        self.optimizer.prepare_grads()
        norm = gradient_norm.global_norm(self.optimizer.chained_optimizers)
        return math.nan if parallel.on_any(not math.isfinite(norm)) else norm

    def update(self, norm: float) -> None:
        """One optimizer step on the clipped gradients. norm: the result of `gradient_norm`."""
        if not math.isfinite(norm):
            raise ValueError(f"gradients with a norm of {norm} move no weights")
        for part in self.optimizer.chained_optimizers:
            if parameters := part.get_parameters():
                gradient_norm.clip(parameters, self.settings.clip, norm)
        self.optimizer.step_with_ready_grads()
        self.gather_pending = bool(self.network.ddp_config.overlap_param_gather)

    def gather(self) -> None:
        """Completes the weights after an update; all ranks call it.

        With `parallel.overlap` and a distributed optimizer the next forward pass gathers each
        weight before its use. Every other reader of the weights calls this first.
        """
        if self.gather_pending:
            self.network.start_param_sync(force_sync=True)
            self.gather_pending = False

    def starting_model(self) -> Model | None:
        """The frozen weights for scoring, in the same memory; None without adapters."""
        if self.adapters is None:
            return None
        return Model(
            bridge=self.bridge,
            network=WithoutAdapters(self.network.module, self.adapters),
            head=self.head,
            image_embedding=self.image_embedding,
            source=self.source,
        )

    def save(self, folder: Path) -> None:
        """Leaves a complete Hugging Face folder (see `bridge.save_folder`)."""
        self.gather()
        bridges.save_folder(self.bridge, self.bare, self.source, folder)

    def save_adapters(self, folder: Path) -> None:
        """Leaves a complete PEFT folder of the adapters. Raises ModelError without adapters."""
        if self.adapters is None:
            raise ModelError("the policy has no adapters: set learner.lora")
        self.gather()
        if parallel.is_first():
            bridges.write_adapters(self.adapters.saved(), self.source, folder)
        parallel.barrier()


def load_policy(
    folder: Path,
    settings: Optimizer,
    precision: str,
    lora: Lora | None = None,
    *,
    layout: Parallel | None = None,
    recompute: Recompute = "none",
    fused: Fusions = "off",
    vision: Vision = "frozen",
) -> Policy:
    """The folder's model with a fresh optimizer. Raises ModelError if it cannot be trained.

    lora: adapters to train in place of the weights. layout: the recipe's [parallel], with the sizes
    that `parallel.ranks` has. fused: the recipe's fusions. vision: whether the vision tower is
    trained.
    """
    layout = layout or Parallel()
    bridge = bridges.open_bridge(
        folder, DTYPES[precision], sequence=layout.sequence, recompute=recompute, fused=fused
    )
    if vision == "trained" and bridge.whole is None:
        raise ModelError(f"{folder} reads no images: leave out learner.vision = 'trained'")
    if lora is not None and bridge.whole is not None:
        raise ModelError(f"{folder} reads images, and lora is for text policies: leave lora out")
    head, image_embedding, network = _network(bridge, folder, lora, vision)
    network.train()
    wrapped = DistributedDataParallel(
        bridge.config,
        DistributedDataParallelConfig(
            grad_reduce_in_fp32=True,
            use_distributed_optimizer=layout.distributed_optimizer,
            overlap_grad_reduce=layout.overlap,
            overlap_param_gather=layout.overlap and layout.distributed_optimizer,
            bucket_size=BUCKET_NUMBERS,
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
        use_distributed_optimizer=layout.distributed_optimizer,
        overlap_param_gather=layout.overlap and layout.distributed_optimizer,
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
    if layout.overlap:
        bridge.config.no_sync_func = wrapped.no_sync  # but in the last micro-batch
    bridge.config.grad_scale_func = optimizer.scale_loss
    states = HostStates(
        optimizer,
        list(wrapped.parameters()),
        [buffer.grad_data for buffer in (*wrapped.buffers, *wrapped.expert_parallel_buffers)],
        device.device(),
    )
    policy = Policy(
        bridge=bridge,
        network=wrapped,
        head=head,
        image_embedding=image_embedding,
        vision=vision,
        source=folder,
        optimizer=optimizer,
        settings=settings,
        peaks=peaks,
        states=states,
    )
    policy.apply_settings()
    return policy


def load_frozen(folder: Path, precision: str) -> Model:
    """The folder's model for scoring only."""
    bridge = bridges.open_bridge(folder, DTYPES[precision], sequence=None)
    head, image_embedding, network = _network(bridge, folder)
    network.requires_grad_(False)
    network.eval()
    return Model(
        bridge=bridge, network=network, head=head, image_embedding=image_embedding, source=folder
    )


@contextmanager
def borrowed_weights(model: Model, folder: Path) -> Iterator[None]:
    """The weights of a published folder in the place of the model's, inside of the block.

    The model's own weights are kept in host memory, and are always restored to the bit.
    """
    if isinstance(model, Policy):
        model.gather()
    adapters = model.adapters
    alone = adapters is not None and is_adapter(folder)
    changed = list((adapters if alone and adapters is not None else model.bare).parameters())
    own = [p.detach().to("cpu", copy=True) for p in changed]
    try:
        if adapters is not None and alone:
            adapters.load(folder)
        else:
            with detached_adapters(model.bare):
                bridges.load_weights(model.bridge, model.bare, folder)
            if adapters is not None:
                adapters.on = False  # the folder has them merged
        yield
    finally:
        if adapters is not None:
            adapters.on = True
        with torch.no_grad():
            for parameter, value in zip(changed, own, strict=True):
                parameter.copy_(value)


def complete_state(optimizer: Any) -> None:
    """Gives every weight its optimizer state before the first update.

    So a checkpoint has the same form before the first update. Megatron omits a step count of 0.
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
    """(output layer, image embedding, module that the schedule calls)"""
    network: Any = bridges.new_model(bridge, folder)
    image_embedding = None
    if hasattr(network, "visual"):
        from learner.vision.pixels import Pixels  # text policies do not need these imports
        from learner.vision.tower import ImageEmbedding

        network.visual.requires_grad_(vision == "trained")
        image_embedding = ImageEmbedding(network.embedding, network.visual, Pixels(folder))
    if lora is not None:
        network.adapters = Adapters(network, bridge.hf_config, lora)
    for parameter in network.parameters():
        set_defaults_if_not_set_tensor_model_parallel_attributes(parameter)
    head = Head(network.output_layer if parallel.is_last_stage() else None)
    if bridge.dtype is torch.bfloat16:
        return head, image_embedding, Float16Module(bridge.config, network)
    return head, image_embedding, network
