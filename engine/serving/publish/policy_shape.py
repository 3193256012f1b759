"""Checks that published weights are the served policy, trained further. Pure.

A server takes no other policy. A tensor of another shape fails in the middle of a load. A tensor of
another name is skipped silently, so that the old weights stay. Numbers are converted as they are
copied, so the floating types are equivalent. A server does not read config.json again: if it
differs, the learner computes something else than the samplers do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

FLOATS = frozenset({"F64", "F32", "F16", "BF16"})
INERT = frozenset(
    {
        "_name_or_path",
        "attention_dropout",
        "bos_token_id",
        "dtype",
        "eos_token_id",
        "initializer_range",
        "max_window_layers",
        "pad_token_id",
        "sliding_window",  # libraries write it as null if `use_sliding_window` is off
        "torch_dtype",
        "transformers_version",
        "use_cache",
    }
)
"""Keys of config.json that do not change what a server computes from ids."""
BUFFERS = (".rotary_emb.inv_freq", ".rotary_emb.cos_cached", ".rotary_emb.sin_cached")
"""Tensors of older files that servers compute themselves."""
HEAD = "lm_head.weight"
TORCH_WORDS = {
    "bfloat16": "BF16",
    "bool": "BOOL",
    "float16": "F16",
    "float32": "F32",
    "float64": "F64",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "int16": "I16",
    "int32": "I32",
    "int64": "I64",
    "int8": "I8",
    "uint8": "U8",
}
"""Torch's name of a type to its name in a safetensors header."""
_NOTHING = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyShape:
    """The content of a policy folder's headers."""

    config: Mapping[str, Any]
    tensors: Mapping[str, tuple[str, tuple[int, ...]]]
    """dtype and shape by name."""


def difference(served: PolicyShape, offered: PolicyShape) -> str | None:
    """The first difference that makes `offered` another policy than `served`; None without one."""
    for key, before, after in _changed(served.config, offered.config, ""):
        return f"its config.json says {key} = {after!r}, the samplers serve {before!r}"
    optional = _optional(served)
    for name in sorted({*served.tensors, *offered.tensors}):
        before, after = served.tensors.get(name), offered.tensors.get(name)
        if before == after or name.endswith(BUFFERS):
            continue
        if before is None or after is None:
            if name.endswith(optional):
                continue
            return (
                f"it has a tensor {name}, which the samplers' policy lacks"
                if after
                else (f"it has no tensor {name}, which the samplers serve")
            )
        if before[1] != after[1]:
            return (
                f"its tensor {name} has the shape {list(after[1])}, the samplers serve "
                f"{list(before[1])}"
            )
        if not {before[0], after[0]} <= FLOATS:
            return f"its tensor {name} is of type {after[0]}, the samplers serve {before[0]}"
    return None


def misfit(served: PolicyShape, name: str, dtype: str, shape: Sequence[int]) -> str | None:
    """Why servers of `served` cannot take a tensor; None if they can.

    dtype: torch's name.
    """
    there = served.tensors.get(name)
    if there is None:
        return f"the samplers' policy has no tensor {name}"
    if tuple(shape) != there[1]:
        return f"tensor {name} has the shape {list(shape)}, the samplers serve {list(there[1])}"
    word = TORCH_WORDS.get(dtype)
    if word is None:
        return f"tensor {name} is of type {dtype!r}: the types are {', '.join(TORCH_WORDS)}"
    if word != there[0] and not {word, there[0]} <= FLOATS:
        return f"tensor {name} is of type {dtype}, the samplers serve {there[0]}"
    return None


def missing(served: PolicyShape, came: Collection[str]) -> list[str]:
    """Tensors of the policy that have not come, sorted."""
    optional = (*_optional(served), *BUFFERS)
    return sorted(
        name for name in served.tensors if name not in came and not name.endswith(optional)
    )


def _changed(
    before: Mapping[str, Any], after: Mapping[str, Any], path: str
) -> Iterator[tuple[str, Any, Any]]:
    """(key, value before, value after) of keys that both have: two versions of a library leave out
    different defaults."""
    for key in before:
        one, other = before[key], after.get(key, _NOTHING)
        if key in INERT or other is _NOTHING or one == other:
            continue
        if isinstance(one, dict) and isinstance(other, dict):
            yield from _changed(one, other, f"{path}{key}.")
        else:
            yield f"{path}{key}", one, other


def _optional(served: PolicyShape) -> tuple[str, ...]:
    """Tensors that a folder may hold twice, because the output layer is the embedding."""
    config = served.config
    nested = config.get("text_config")
    tied = config.get("tie_word_embeddings")
    if tied is None and isinstance(nested, dict):
        tied = nested.get("tie_word_embeddings")
    if tied is None:
        tied = not any(name.endswith(HEAD) for name in served.tensors)
    return (HEAD,) if tied else ()
