"""Trajectories to rows, rows to packed micro-batches.

Invariants
- A row is one sequence, cut after its last policy token: nothing later can change its loss.
- Each completion of a trajectory is a target in one row at most: a sequence's copy of its parent's
  tokens is input only.
- Observation tokens are input and never target; their log-probs are never read.
- A token's weight in the loss is fixed for the whole batch before it is split. So any split into
  micro-batches or data-parallel ranks gives the same gradient.

Does not know the model or the loss.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from learner.errors import DataError
from learner.training.packing import plan
from learner.vision.placed import Image, PlacedImage, positions, read_images
from toolwright import types as t


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One sequence of T tokens; the arrays have one length T."""

    trajectory: str
    tokens: np.ndarray
    """int64 ids."""
    target: np.ndarray
    """bool: a policy token that carries loss; never the first token."""
    behaviour: np.ndarray
    """float32 log-probs by the sampler."""
    temperature: np.ndarray
    """float32."""
    fresh: np.ndarray
    """bool: written by the current weights."""
    advantage: np.ndarray
    """float32, read at targets only."""
    shown: tuple[PlacedImage, ...] = ()
    """Images in order, each with all of its tokens before the last target."""
    sequence: int = 0
    """Index among the trajectory's sequences."""
    copies: float = 1.0
    """The row counts in the loss as that many copies of it, above 0."""
    silent: bool = False
    """Whether no member of the group has an advantage."""
    weight: float = 0.0
    """Weight of each target in the batch's loss."""
    task: int = 0
    """Index among the recipe's tasks."""
    old: np.ndarray | None = None
    """float32 log-probs by the learner at the start of the update, once computed."""
    reference: np.ndarray | None = None
    """float32 log-probs by the reference, once computed."""
    teacher: np.ndarray | None = None
    """float32 log-probs by the teacher, once computed."""

    @property
    def count(self) -> int:
        """Number of targets."""
        return int(self.target.sum())

    @property
    def has_signal(self) -> bool:
        """Whether a target has an advantage other than 0; NaN counts as one."""
        return bool(self.advantage[self.target].any())

    def excess(self, other: np.ndarray) -> np.ndarray:
        """[targets] float64 log-probs by the sampler, minus those of `other`, [T]."""
        found: np.ndarray = self.behaviour[self.target].astype(np.float64) - other[self.target]
        return found

    @property
    def length(self) -> int:
        """Number of tokens that go into the model: all before the last target."""
        return len(self.tokens) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """Rows one after the other, without padding between them; n targets in the same order."""

    tokens: torch.Tensor
    """[1, s] int64 ids."""
    positions: torch.Tensor
    """[1, s] int64, from 0 in every row; [3, s] if a row has images (see `vision.placed`)."""
    lengths: tuple[int, ...]
    """Lengths of the rows and of the padding, s in sum; they stay on the host."""
    index: torch.Tensor
    """[n] positions in s whose logits predict the targets."""
    targets: torch.Tensor
    """[n] int64 ids."""
    temperature: torch.Tensor
    behaviour: torch.Tensor
    advantage: torch.Tensor
    weight: torch.Tensor
    """[n] float32, like the three above; see `Row`."""
    fresh: torch.Tensor
    """[n] bool."""
    row: torch.Tensor
    """[n] index of each target's row in the batch."""
    task: torch.Tensor
    """[n] int64, see `Row.task`."""
    shown: tuple[PlacedImage, ...] = ()
    """Images, placed by their tokens in s; they stay on the host."""
    old: torch.Tensor | None = None
    reference: torch.Tensor | None = None


def rows_of(
    trajectory: t.Trajectory,
    *,
    temperature: float,
    version: t.WeightVersion | None = None,
    images: Mapping[str, Image] | None = None,
) -> list[Row]:
    """A row without advantages for every sequence that has a target and a weight above 0; no row
    if masked.

    temperature: of segments that state none. Temperature 0 counts as 1: the sampler reports greedy
    tokens' log-probs undivided. version: segments of this version are fresh. images: by hash, all
    that the policy read before its last trainable token.

    Raises DataError if the trajectory has images and `images` is None. Also if an image takes
    another number of tokens here than in the sampler.
    """
    if trajectory.masked:
        return []
    if trajectory.shown_media and images is None:
        raise DataError(
            f"{trajectory.id}: its policy was shown images. `learner run` trains on them if "
            "policy.model is a Qwen2.5-VL, `learner sft` never does: set policy.model to a text "
            "policy (tools still get the tasks' images)"
        )
    rows = []
    shared_prefixes = trajectory.shared_prefixes
    for place, sequence in enumerate(trajectory.sequences):
        segments = sequence.segments
        sizes = [len(segment.token_ids) for segment in segments]
        target = np.repeat(np.array([s.trainable for s in segments], dtype=bool), sizes)
        target[: max(1, shared_prefixes[place])] = False
        if not (sequence.weight > 0 and target.any()):
            continue
        end = int(np.flatnonzero(target)[-1]) + 1
        sampled_at = [s.sampling.temperature if s.sampling else None for s in segments]
        temperatures = np.array(
            [temperature if own is None else own for own in sampled_at], dtype=np.float32
        )
        temperatures[temperatures == 0] = 1.0
        fresh = [version is not None and s.weight_version == version for s in segments]
        rows.append(
            Row(
                advantage=np.zeros(end, dtype=np.float32),
                sequence=place,
                copies=sequence.weight,
                trajectory=trajectory.id,
                tokens=np.array(sequence.token_ids[:end], dtype=np.int64),
                target=target[:end],
                behaviour=np.array(sequence.logprobs[:end], dtype=np.float32),
                temperature=np.repeat(temperatures, sizes)[:end],
                fresh=np.repeat(np.array(fresh, dtype=bool), sizes)[:end],
                shown=_shown(trajectory.id, sequence, images or {}),
            )
        )
    return rows


def _shown(name: str, sequence: t.Sequence, images: Mapping[str, Image]) -> tuple[PlacedImage, ...]:
    found: list[PlacedImage] = []
    for start, ref in read_images(sequence):
        image = images[ref.blob.sha256]
        if image.tokens != ref.placeholder_tokens:
            raise DataError(
                f"{name}: image {image.sha256[:12]} takes {image.tokens} tokens here and took "
                f"{ref.placeholder_tokens} in the sampler: both read preprocessor_config.json, "
                "the learner that of policy.model; make the samplers' the same"
            )
        found.append(PlacedImage(image=image, start=start))
    return tuple(found)


def check_vocabulary(rows: Iterable[Row], size: int) -> None:
    """Raises DataError if a row has an id outside of the policy's vocabulary."""
    for row in rows:
        if len(row.tokens) and not 0 <= int(row.tokens.min()) <= int(row.tokens.max()) < size:
            raise DataError(
                f"trajectory {row.trajectory} has token id {int(row.tokens.max())}, the policy's "
                f"vocabulary has {size} ids: use the tokenizer that belongs to the model"
            )


def collate(
    rows: Sequence[Row], indices: Sequence[int], multiple: int = 1, each: int = 1
) -> MicroBatch:
    """The rows of one micro-batch as tensors on the CPU.

    each: a row's number of tokens becomes a multiple of it, by zeros at its end that no target
    sees. multiple: a multiple of `each`. The number of all tokens becomes a multiple of it, by a
    last sequence of zeros. A micro-batch without rows is such a sequence.
    """
    chosen = [rows[i] for i in indices]
    lengths = [row.length + -row.length % each for row in chosen]
    if padding := -sum(lengths) % multiple or (0 if chosen else multiple):
        lengths.append(padding)
    tokens = np.zeros(sum(lengths), dtype=np.int64)
    starts = np.cumsum([0, *lengths])
    index: list[np.ndarray] = []
    for start, row in zip(starts, chosen, strict=False):
        tokens[start : start + row.length] = row.tokens[:-1]
        index.append(np.flatnonzero(row.target) - 1 + start)
    counts = [row.count for row in chosen]

    def targets_of(name: str, dtype: np.dtype | type) -> torch.Tensor:
        parts = [getattr(row, name)[row.target] for row in chosen]
        return torch.from_numpy(
            np.concatenate(parts).astype(dtype) if parts else np.empty(0, dtype)
        )

    def spread(values: list[float] | Sequence[int], dtype: type) -> torch.Tensor:
        return torch.from_numpy(np.repeat(np.array(values, dtype=dtype), counts))

    has_old = bool(chosen) and chosen[0].old is not None
    has_reference = bool(chosen) and chosen[0].reference is not None
    return MicroBatch(
        tokens=torch.from_numpy(tokens).unsqueeze(0),
        positions=_positions(chosen, lengths),
        shown=tuple(
            one.moved(int(start))
            for start, row in zip(starts, chosen, strict=False)
            for one in row.shown
        ),
        lengths=tuple(lengths),
        index=torch.from_numpy(np.concatenate(index) if index else np.empty(0, np.int64)),
        targets=targets_of("tokens", np.int64),
        temperature=targets_of("temperature", np.float32),
        behaviour=targets_of("behaviour", np.float32),
        advantage=targets_of("advantage", np.float32),
        weight=spread([row.weight for row in chosen], np.float32),
        fresh=targets_of("fresh", np.bool_),
        row=spread(list(indices), np.int64),
        task=spread([row.task for row in chosen], np.int64),
        old=targets_of("old", np.float32) if has_old else None,
        reference=targets_of("reference", np.float32) if has_reference else None,
    )


def _positions(rows: Sequence[Row], lengths: Sequence[int]) -> torch.Tensor:
    """[1, s], or [3, s] if one of the rows has images. Padding counts as a row."""
    if not any(row.shown for row in rows):
        return torch.cat([torch.arange(length) for length in lengths]).unsqueeze(0)
    shown = [row.shown for row in rows] + [()] * (len(lengths) - len(rows))
    pieces = [positions(length, own) for length, own in zip(lengths, shown, strict=True)]
    return torch.from_numpy(np.concatenate(pieces, axis=1))


def micro_batches(
    rows: Sequence[Row], *, rank: int, ranks: int, budget: int, multiple: int = 1, each: int = 1
) -> list[MicroBatch]:
    """One rank's micro-batches of a batch whose rows all ranks hold."""
    parts = plan([row.length for row in rows], ranks, budget)[rank]
    return [collate(rows, part, multiple, each) for part in parts]
