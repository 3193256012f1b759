"""A tiny random Qwen2.5-VL, rows with images, and transformers as the judge."""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image as Pillow

from learner.training.batch import Row
from learner.vision.pixels import Pixels
from learner.vision.placed import Image, PlacedImage
from tests.integration.learner.models import SHAPE, TEMPLATE

MARKS = START, END, PAD, VIDEO = 60, 61, 62, 63
WORDS = 60
"""Ids below are text."""
SIZES = ((56, 84), (112, 56), (100, 70))
"""Of the pictures, (width, height): a token is 28 x 28 pixels, and the last one is resized."""


PROCESSOR = {
    "min_pixels": 28 * 28,
    "max_pixels": 16 * 28 * 28,
    "patch_size": 14,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
    "image_processor_type": "Qwen2VLImageProcessor",
    "processor_class": "Qwen2_5_VLProcessor",
}
"""As the released folders have it, with fewer pixels."""


def write_seeing_model(
    folder: Path,
    *,
    tied: bool = False,
    released: bool = True,
    marks: Sequence[int] = MARKS,
    **shape: int,
) -> Path:
    """Random weights, norms and biases included. released: named as the authors' folders are.
    marks: ids around, of and for images and videos. A tokenizer that is in the folder stays."""
    from safetensors.torch import load_file, save_file
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    torch.manual_seed(0)
    config = Qwen2_5_VLConfig(
        text_config={
            **{name: value for name, value in SHAPE.items() if name != "rope_theta"},
            **shape,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 5000.0,
                "mrope_section": [2, 1, 1],
            },
            "tie_word_embeddings": tied,
        },
        vision_config={
            "depth": 2,
            "hidden_size": 32,
            "intermediate_size": 24,
            "num_heads": 2,
            "out_hidden_size": 32,
            "fullatt_block_indexes": [1],
            "window_size": 56,
        },
        tie_word_embeddings=tied,
        vision_start_token_id=marks[0],
        vision_end_token_id=marks[1],
        image_token_id=marks[2],
        video_token_id=marks[3],
    )
    model = Qwen2_5_VLForConditionalGeneration(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder)
    file = folder / "model.safetensors"
    tensors = {}
    for name, value in load_file(file).items():
        short = name.replace("model.visual.", "visual.").replace("model.language_model.", "model.")
        long = re.sub(r"^model\.", "model.language_model.", short)
        long = re.sub(r"^visual\.", "model.visual.", long)
        tensors[short if released else long] = value
    save_file(tensors, file, metadata={"format": "pt"})
    (folder / "preprocessor_config.json").write_text(json.dumps(PROCESSOR), encoding="utf-8")
    if not (folder / "tokenizer.json").exists():
        (folder / "tokenizer.json").write_text('{"made": "up"}', encoding="utf-8")
        (folder / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    return folder


def picture(width: int, height: int, seed: int = 0) -> bytes:
    """A PNG of noise."""
    noise = np.random.default_rng(seed).integers(0, 256, size=(height, width, 3), dtype=np.uint8)
    out = io.BytesIO()
    Pillow.fromarray(noise).save(out, "PNG")
    return out.getvalue()


def pictures(folder: Path) -> list[Image]:
    """One of each of SIZES."""
    pixels = Pixels(folder)
    found = []
    for seed, (width, height) in enumerate(SIZES):
        data = picture(width, height, seed)
        found.append(pixels.image(hashlib.sha256(data).hexdigest(), data))
    return found


def seeing_rows(folder: Path, count: int, *, seed: int = 0) -> list[Row]:
    """Rows with two actions around an observation; of three in turn the first has an image in its
    prompt and one in its observation, the second in its observation, the third none."""
    draw = np.random.default_rng(seed)
    images = pictures(folder)
    rows = []
    for number in range(count):
        tokens: list[int] = []
        target: list[bool] = []
        shown: list[PlacedImage] = []

        def text(least: int = 2, *, policy: bool = False) -> None:
            size = int(draw.integers(least, 7))
            tokens.extend(draw.integers(0, WORDS, size=size).tolist())  # noqa: B023
            target.extend([policy] * size)  # noqa: B023

        def image(which: int) -> None:
            one = images[which % len(images)]
            tokens.append(START)  # noqa: B023
            shown.append(PlacedImage(image=one, start=len(tokens)))  # noqa: B023
            tokens.extend([PAD] * one.tokens + [END])  # noqa: B023
            target.extend([False] * (one.tokens + 2))  # noqa: B023

        text()
        if number % 3 == 0:
            image(number)
            text()
        text(policy=True)
        text()
        if number % 3 < 2:
            image(number + 1)
            text()
        text(policy=True)
        mask = np.array(target)
        size = len(tokens)
        rows.append(
            Row(
                trajectory=f"t{number}",
                tokens=np.array(tokens, dtype=np.int64),
                target=mask,
                behaviour=draw.normal(-4.0, 0.3, size=size).astype(np.float32),
                temperature=np.ones(size, dtype=np.float32),
                fresh=mask,
                advantage=np.full(size, draw.choice([-1.5, -0.5, 0.5, 1.0]), dtype=np.float32),
                shown=tuple(shown),
            )
        )
    return rows


def load_seeing(folder: Path) -> Any:
    """transformers' model in float32."""
    from transformers import Qwen2_5_VLForConditionalGeneration

    return Qwen2_5_VLForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)


def seeing_log_probs(
    model: Any, row: Row, images: Sequence[Image] | None = None, pixels: Pixels | None = None
) -> torch.Tensor:
    """[T-1] log-probs of the tokens after the first, by transformers. images: other ones than the
    row's. pixels: another processor than that of the model's folder."""
    tokens = torch.as_tensor(row.tokens, dtype=torch.long)[None]
    seen: dict[str, torch.Tensor] = {}
    if row.shown:
        pixels = pixels or Pixels(Path(model.config._name_or_path))
        processed = pixels(images or [one.image for one in row.shown])
        seen = dict(zip(("pixel_values", "image_grid_thw"), processed, strict=True))
    kinds = (tokens == PAD).int()
    logits = model(input_ids=tokens, mm_token_type_ids=kinds, **seen).logits[0, :-1]
    logp = torch.log_softmax(logits.float(), dim=-1)
    return logp[torch.arange(len(row.tokens) - 1), tokens[0, 1:]]
