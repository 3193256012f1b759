"""`learner check`: one forward pass of a policy folder here and by transformers, token by token.

The samplers compute the same numbers as transformers. A learner that differs would train on the
difference, and no later metric names the reason as plainly.
"""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image as Pillow
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

from learner.errors import ModelError
from learner.model import spec
from learner.model.packed import packed
from learner.model.policy import Model, load_frozen
from learner.ranks import device, parallel
from learner.vision.placed import PlacedImage
from learner.vision.placed import positions as positions_of

TOKENS = 96
ROWS = 2
WIDTH, HEIGHT = 171, 115
"""Size of the image, in pixels; the processor resizes it."""
AGREES = 1e-3
"""Largest difference of a log-prob in float32. Measured: 1e-6 on two layers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Largest and mean absolute difference of the log-probs of `tokens` random tokens."""

    worst: float
    mean: float
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageRow:
    """A row with an image in the middle."""

    tokens: torch.Tensor
    """[1, s] ids."""
    shown: PlacedImage
    inputs: dict[str, torch.Tensor]
    """Further inputs of transformers' model."""


def check(folder: Path) -> Agreement:
    """Compares the folder's model in float32. A policy that reads images also gets a row with one.

    Raises ModelError if the model cannot be trained or differs.
    """
    with parallel.ranks():
        model = load_frozen(folder, "float32")
        config = model.bridge.hf_config
        length = min(TOKENS, int(config.max_position_embeddings))
        draw = torch.Generator().manual_seed(0)
        tokens = torch.randint(int(config.vocab_size), (ROWS, length), generator=draw)
        tokens = tokens.to(device.device())
        positions = torch.arange(length, device=tokens.device).expand(tokens.shape)
        seen = _row_with_image(model, draw) if model.image_embedding is not None else None
        with torch.no_grad():
            mine = [_log_probs(model.bare(tokens, positions, None), tokens)]
            if seen is not None:
                mine.append(_log_probs(_image_logits(model, seen), seen.tokens))
            del model
            kind = AutoModelForCausalLM if seen is None else AutoModelForImageTextToText
            other = kind.from_pretrained(
                folder, dtype=torch.float32, trust_remote_code=False, use_safetensors=True
            )
            other = other.to(tokens.device).eval()
            theirs = [_log_probs(other(tokens).logits, tokens)]
            if seen is not None:
                logits = other(input_ids=seen.tokens, **seen.inputs).logits
                theirs.append(_log_probs(logits, seen.tokens))
    difference = torch.cat([(a - b).abs().flatten() for a, b in zip(mine, theirs, strict=True)])
    found = Agreement(
        worst=float(difference.max()), mean=float(difference.mean()), tokens=difference.numel()
    )
    if not found.worst <= AGREES:
        raise ModelError(
            f"{folder}: the log-prob of a token differs from transformers' by {found.worst:.1e} "
            f"(mean {found.mean:.1e} of {found.tokens}): a setting of its config.json is not "
            "computed here"
        )
    return found


def _row_with_image(model: Model, draw: torch.Generator) -> ImageRow:
    whole, where = model.bridge.whole, device.device()
    noise = torch.randint(256, (HEIGHT, WIDTH, 3), generator=draw, dtype=torch.uint8)
    file = io.BytesIO()
    Pillow.fromarray(noise.numpy()).save(file, "PNG")
    data = file.getvalue()
    image = model.image_embedding.pixels.image(hashlib.sha256(data).hexdigest(), data)
    before, after = torch.randint(
        min(whole.image_token_id, whole.video_token_id, whole.vision_start_token_id),
        (2, TOKENS // 4),
        generator=draw,
    )
    marks = (whole.vision_start_token_id, *[whole.image_token_id] * image.tokens)
    tokens = torch.cat([before, torch.tensor([*marks, whole.vision_end_token_id]), after])[None]
    pixels, grids = model.image_embedding.pixels([image])
    return ImageRow(
        tokens=tokens.to(where),
        shown=PlacedImage(image=image, start=len(before) + 1),
        inputs={
            "pixel_values": pixels.to(where),
            "image_grid_thw": grids.to(where),
            "mm_token_type_ids": (tokens == whole.image_token_id).int().to(where),
        },
    )


def _image_logits(model: Model, seen: ImageRow) -> Any:
    """[1, s, v] logits."""
    length = seen.tokens.shape[1]
    places = torch.from_numpy(positions_of(length, [seen.shown])).to(seen.tokens.device)
    model.image_embedding.shown = (seen.shown,)
    sequences = packed((length,), places, fused=spec.has_transformer_engine())
    return model.bare(seen.tokens, places, None, packed_seq_params=sequences)


def _log_probs(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    logp = torch.log_softmax(logits[:, :-1].float(), -1)
    return logp.gather(-1, tokens[:, 1:].unsqueeze(-1)).squeeze(-1)
