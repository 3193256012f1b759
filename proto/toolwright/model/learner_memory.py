"""Memory of one learner rank, by arithmetic over config.json and the recipe. Nothing is loaded.

A rank's memory has its largest value at one of three moments of a step:

- the output layer, while every layer's activations are kept for the backward pass;
- the backward pass of the last layer, while the layers before it still have theirs;
- the optimizer's update, when no activations exist.

Learner, `engine check` and the doctor print this estimate. Tests compare it with live tensors on a
CPU, and bench/gpu with peaks on a GPU. A frozen model (reference, teacher) counts as one of the
policy's size. The vision tower, libraries and fragmentation are left out.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from toolwright.model.model_folder import ModelFolderError, read_json

GIB = 1 << 30
CPU_CHUNK_BYTES = 128 << 20
"""Largest size of one chunk's logits in float32, in bytes, on a CPU."""
CUDA_CHUNK_BYTES = 1 << 30
"""The same on a GPU. Each chunk reads and writes the whole weight gradient, so it is larger."""
CUDA_SHARE = 64
"""On a GPU a chunk is at most this part of the device's memory."""
FLOAT32 = 4
ROUTER = 9
"""Numbers a token and expert that the router keeps."""
MOMENTS = 8
"""Adam's two moments of a weight, in bytes."""


class Layout(Protocol):
    """The recipe's [parallel]."""

    @property
    def tensor(self) -> int: ...

    @property
    def pipeline(self) -> int: ...

    @property
    def context(self) -> int: ...

    @property
    def expert(self) -> int: ...

    @property
    def sequence(self) -> bool: ...

    @property
    def distributed_optimizer(self) -> bool: ...


class Adapters(Protocol):
    """The recipe's [lora]."""

    @property
    def rank(self) -> int: ...

    @property
    def targets(self) -> Sequence[str]: ...


class Optimizer(Protocol):
    """The recipe's [optimizer]."""

    @property
    def kind(self) -> str: ...


@runtime_checkable
class Settings(Protocol):
    """A training table (learner or sft): the settings that decide about memory."""

    @property
    def precision(self) -> str: ...

    @property
    def recompute(self) -> str: ...

    @property
    def tokens_per_microbatch(self) -> int: ...

    @property
    def optimizer(self) -> Optimizer: ...

    @property
    def parallel(self) -> Layout: ...

    @property
    def lora(self) -> Adapters | None: ...

    @property
    def frozen_models(self) -> int:
        """Number of whole frozen models beside the policy."""

    def longest_row(self, shared: Any) -> tuple[int, str]:
        """(tokens of the longest row that the recipe allows, the key that limits it)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """A decoder's widths, in numbers a token, and its counts."""

    hidden: int
    layers: int
    query: int
    """Heads times head size."""
    key_value: int
    """Groups times head size; keys and values have this width each."""
    head: int
    feed_forward: int
    """Width of one expert if there are experts."""
    vocabulary: int
    positions: int
    """Longest sequence."""
    tied: bool
    head_norms: bool
    """Queries and keys have norms of their own (Qwen3)."""
    biases: bool
    """Queries, keys and values have biases (Qwen2)."""
    experts: int
    experts_a_token: int

    @property
    def attention_weights(self) -> int:
        """Weights of one layer's attention, in numbers, without norms."""
        biases = self.query + 2 * self.key_value if self.biases else 0
        return self.hidden * (2 * self.query + 2 * self.key_value) + biases

    @property
    def expert_weights(self) -> int:
        """Weights of one expert, or of a layer's only feed-forward part."""
        return 3 * self.hidden * self.feed_forward

    @property
    def norm_weights(self) -> int:
        """Weights of one layer's norms."""
        return 2 * self.hidden + (2 * self.head if self.head_norms else 0)


def read_decoder(folder: Path) -> Decoder:
    """The decoder of a policy folder. Raises ModelFolderError without a usable config.json."""
    file = folder / "config.json"
    whole = read_json(file)
    try:
        return decoder_of(whole.get("text_config") or whole, tied=whole.get("tie_word_embeddings"))
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise ModelFolderError(f"{file} describes no decoder: {error!r}") from error


def decoder_of(config: Mapping[str, Any], *, tied: bool | None = None) -> Decoder:
    """The decoder of a Hugging Face configuration. Raises KeyError or TypeError for another one.

    tied: value of the whole configuration, used if this part has none.
    """
    heads = config["num_attention_heads"]
    head = config.get("head_dim") or config["hidden_size"] // heads
    experts = config.get("num_experts") or config.get("num_local_experts") or 0
    kind = config["model_type"]
    groups = config.get("num_key_value_heads") or heads
    return Decoder(
        hidden=config["hidden_size"],
        layers=config["num_hidden_layers"],
        query=heads * head,
        key_value=groups * head,
        head=head,
        feed_forward=config["moe_intermediate_size"] if experts else config["intermediate_size"],
        vocabulary=config["vocab_size"],
        positions=config["max_position_embeddings"],
        tied=bool(config.get("tie_word_embeddings", tied)),
        head_norms=kind.startswith("qwen3"),
        biases=kind.startswith("qwen2"),
        experts=experts,
        experts_a_token=config["num_experts_per_tok"] if experts else 1,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Memory of one rank, in bytes."""

    states: int
    """Weights, gradients and the optimizer's state."""
    kept_a_token: float
    """Activations that a stage's layers keep for the backward pass, of one token of a
    micro-batch."""
    in_flight: int
    """Micro-batches that the first pipeline stage keeps; the last one keeps one."""
    layer_a_token: float
    """Additional activations of the layer in its backward pass, of one token."""
    output_a_token: float
    """Hidden states of the output layer and their gradient, of one token."""
    logits_a_token: float
    """Float32 logits of one token."""
    chunk: int
    """Largest size of one chunk's logits."""
    copies: float
    """Tensors of the chunk's size that live at a time, if one chunk has all tokens."""
    output_gradient: int
    """Gradient of the output layer's weight, until it is added to the rank's gradients."""
    shared_gradient: int
    """The part of it that lives until the backward pass ends: the embedding has the same weight."""
    update: int
    """Temporary tensors of the optimizer's update."""

    def peak(self, tokens: int) -> int:
        """Largest memory with micro-batches of that many tokens."""
        return self.states + max(self.activations(tokens), self.update)

    def activations(self, tokens: int) -> int:
        """Largest memory beside the states, before the update, with such micro-batches."""
        at_output = self.output_a_token * tokens + self._logits(tokens) + self.output_gradient
        in_layer = self.layer_a_token * tokens + self.shared_gradient
        kept = self.kept_a_token * tokens
        return int(max(kept + at_output, kept * self.in_flight + in_layer))

    def longest(self, free: int) -> int:
        """Largest number of tokens such that no smaller micro-batch needs more than `free` bytes
        beside the states."""

        def needed(tokens: int) -> int:
            # One chunk of all tokens needs more than the first two chunks of a few more.
            one_chunk = int(self.chunk // self.logits_a_token)
            return max(self.activations(tokens), self.activations(min(tokens, one_chunk)))

        most = int(free / self.kept_a_token) + 1
        return max(0, bisect(range(most), free, key=needed) - 1)

    def _logits(self, tokens: int) -> float:
        """The first chunks' logits are computed again, while the last one's are kept."""
        whole = self.logits_a_token * tokens
        chunks = max(1, -(-int(whole) // self.chunk))
        return (self.copies + (chunks > 1)) * whole / chunks


def chunk_bytes(*, cuda: int) -> int:
    """Largest size of one chunk's logits in float32, in bytes. cuda: memory of the GPU, or 0."""
    if not cuda:
        return CPU_CHUNK_BYTES
    return max(CPU_CHUNK_BYTES, min(CUDA_CHUNK_BYTES, cuda // CUDA_SHARE))


def estimate(decoder: Decoder, settings: Settings, *, cuda: int = 0, data: int = 1) -> Estimate:
    """Memory of one rank. cuda: memory of its GPU in bytes, or 0. data: data-parallel ranks."""
    layout = settings.parallel
    size = _size(settings)
    layers = -(-decoder.layers // layout.pipeline)
    kept, layer = _layer_numbers(decoder, settings, cuda=bool(cuda))
    if settings.recompute == "full":
        layer += kept
        kept = decoder.hidden
    vocabulary = decoder.vocabulary // layout.tensor
    table = vocabulary * decoder.hidden
    converted = 0 if size == FLOAT32 else size
    trains_output = settings.lora is None
    per_rank = size / layout.context
    return Estimate(
        states=_states(decoder, settings, layers, data),
        kept_a_token=(kept * layers + decoder.hidden) * per_rank,
        in_flight=layout.pipeline,
        layer_a_token=layer * per_rank,
        output_a_token=2 * decoder.hidden * per_rank,
        logits_a_token=FLOAT32 * vocabulary / layout.context,
        chunk=chunk_bytes(cuda=cuda),
        copies=2 if size == FLOAT32 else 2.5,
        output_gradient=table * (FLOAT32 + converted) * trains_output,
        shared_gradient=table * size * (trains_output and decoder.tied and layout.pipeline == 1),
        update=_update_bytes(decoder, settings, layers, cuda=bool(cuda)),
    )


def _layer_numbers(decoder: Decoder, settings: Settings, *, cuda: bool) -> tuple[float, float]:
    """Numbers a token: (kept by one layer, those that its backward pass adds)."""
    tensor = settings.parallel.tensor
    hidden, query, key_value = decoder.hidden, decoder.query, decoder.key_value
    half = settings.precision != "float32"
    # A norm keeps its result, and its input or normed input. torch's norm of half precision on a
    # CPU keeps float32 copies: of its input, and of the normed input for the weight's gradient.
    norm_keeps = 2 if cuda or not half else 3 if settings.lora else 5
    split = tensor if settings.parallel.sequence else 1
    rows = 2 * norm_keeps * hidden / split
    # The joined product, queries and keys with their positions, the kernel's result and its copy.
    attention = 4 * query + 3 * key_value
    if decoder.head_norms and not (half and cuda):
        attention += (norm_keeps - 1) * (query + key_value)
    # Gate and up joined, then gate, up and both together: Megatron's unfused GLU keeps five widths.
    # That of experts computes three of them again, and has its own rows and the router's scores.
    width = decoder.experts_a_token * decoder.feed_forward
    forward = 5 * width / tensor
    if decoder.experts:
        rows_of_experts = decoder.experts_a_token * hidden + ROUTER * decoder.experts
        forward = (3 * width + rows_of_experts) / split
    kept = rows + 4 * decoder.head + attention / tensor + forward
    # Adapters add their matrix's result and its gradient; a recomputed layer has one of them.
    adapted = 0 if settings.lora is None else 1 if settings.recompute == "full" else 2
    layer = (2 + adapted) * width / (split if decoder.experts else tensor)
    if settings.recompute == "selective":
        # Norms keep their input alone, and the GLU keeps gate and up.
        product = 0 if decoder.experts else 3 * width / tensor
        norm = (norm_keeps - 1) * hidden / split
        return kept - 2 * norm - product, layer + norm + product
    return kept, layer


def _states(decoder: Decoder, settings: Settings, layers: int, data: int) -> int:
    """Bytes of weights, gradients, the optimizer's state and frozen models."""
    size = _size(settings)
    weights, matrices = _weights(decoder, settings.parallel, layers)
    split = data if settings.parallel.distributed_optimizer else 1
    a_weight = size + FLOAT32 + ((size < FLOAT32) * FLOAT32 + MOMENTS) / split
    frozen = settings.frozen_models * weights * size
    if settings.lora is not None:
        adapters = layers * _adapter_weights(decoder, settings.lora)
        return int(frozen + weights * size + adapters * a_weight)
    saved = FLOAT32 * matrices if settings.optimizer.kind == "muon" else 0
    return int(frozen + weights * a_weight - saved)


def _weights(decoder: Decoder, layout: Layout, layers: int) -> tuple[int, int]:
    """Numbers on a rank: (all weights, those of them that are matrices of layers)."""
    forward = decoder.expert_weights // layout.tensor
    if decoder.experts:
        router = decoder.experts * decoder.hidden
        forward = decoder.expert_weights * decoder.experts // layout.expert + router
    matrices = layers * (decoder.attention_weights // layout.tensor + forward)
    tables = decoder.vocabulary * decoder.hidden // layout.tensor
    if not decoder.tied and layout.pipeline == 1:
        tables *= 2
    return matrices + tables + layers * decoder.norm_weights + decoder.hidden, matrices


def _update_bytes(decoder: Decoder, settings: Settings, layers: int, *, cuda: bool) -> int:
    """Temporary tensors of Adam: on a GPU one number for every weight, else of the largest one."""
    weights, _ = _weights(decoder, settings.parallel, layers)
    if settings.lora is not None:
        weights = layers * _adapter_weights(decoder, settings.lora)
    table = decoder.vocabulary * decoder.hidden // settings.parallel.tensor
    return FLOAT32 * (weights if cuda else 2 * min(weights, table))


def _size(settings: Settings) -> int:
    """Bytes of a weight and of an activation."""
    return FLOAT32 if settings.precision == "float32" else 2


def _adapter_weights(decoder: Decoder, lora: Adapters) -> int:
    """Numbers of one layer's adapters."""
    hidden, forward = decoder.hidden, decoder.feed_forward
    outer = {
        "q_proj": hidden + decoder.query,
        "k_proj": hidden + decoder.key_value,
        "v_proj": hidden + decoder.key_value,
        "o_proj": hidden + decoder.query,
        "gate_proj": hidden + forward,
        "up_proj": hidden + forward,
        "down_proj": hidden + forward,
    }
    return lora.rank * sum(outer[name] for name in lora.targets)


def report(
    decoder: Decoder,
    table: Settings,
    longest: tuple[int, str],
    room: int,
    *,
    name: str,
    cuda: int = 0,
    data: int = 1,
    loaded: bool = False,
) -> tuple[str, str | None]:
    """(the estimate as a clause, the fix if it is above `room` bytes)

    longest: result of `Settings.longest_row`. room: memory available to the rank, in bytes. name:
    the table's name in the recipe. cuda, data: as of `estimate`. loaded: the states exist already,
    so `room` is what they left.
    """
    found = estimate(decoder, table, cuda=cuda, data=data)
    room += found.states * loaded
    length, key = min(longest[0], decoder.positions), longest[1]
    tokens = max(table.tokens_per_microbatch, length)
    rest = max(found.activations(tokens), found.update)
    clause = (
        f"about {_gib(found.peak(tokens))} GiB a rank with micro-batches of {tokens:,} tokens "
        f"({_gib(found.states)} for weights, gradients and optimizer, {_gib(rest)} for the rest); "
        f"{_gib(room)} GiB are available"
    )
    if found.peak(tokens) <= room:
        return clause, None
    fits = found.longest(room - found.states) if found.states + found.update <= room else 0
    more = f"{name}.parallel.tensor, {name}.lora or a smaller policy"
    if fits >= length:
        return clause, f"set {name}.tokens_per_microbatch to at most {fits}"
    if not fits:
        return clause, f"no token fits: set {more}"
    full = "" if table.recompute == "full" else f"or {name}.recompute = 'full', "
    return clause, f"set {key} to at most {fits}, {full}or {more}"


def _gib(size: float) -> str:
    return f"{size / GIB:.1f}"
