"""Warms the tiny policy up: imitation of the demonstrations, pictures and all.

    python -m toolwright.script world/warm.py --model run/untrained --output run/warm --seed 1

`learner sft` imitates text alone, so this is plain transformers. A demonstration's tokens are those
that a rollout would have: Chat makes them, which the recipe's protocol is without its prompt. Its
pictures go through the image processor of the policy's folder. The loss is that of the policy's own
tokens. One thread.
"""

from __future__ import annotations

import io
import math
import shutil
from collections import defaultdict
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import torch
from PIL import Image

from engine.api import HuggingFaceCodec
from learner.model.muon import Muon
from toolwright.script import Output

from .demonstrations import IGNORED, PictureConversation, labelled
from .lessons import lessons

SEEING, STEPS, BATCH = 200, 200, 32
"""Steps in which it learns to see, and those after them."""
MUON_LR, ADAM_LR, WARMUP, LEAST = 0.012, 4e-3, 30, 0.05
"""Rates, steps over which they rise, and the share of them that a cosine falls to once it sees."""


class Imitation:
    """A policy and what it imitates."""

    def __init__(self, folder: Path) -> None:
        from transformers import Qwen2_5_VLForConditionalGeneration
        from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import (
            Qwen2VLImageProcessorPil,
        )

        self.model: Any = Qwen2_5_VLForConditionalGeneration.from_pretrained(
            folder, dtype=torch.float32
        )
        self._processor = Qwen2VLImageProcessorPil.from_pretrained(folder)
        self._codec = HuggingFaceCodec(folder)
        self._place = int(self.model.config.image_token_id)

    def loss(self, batch: Sequence[PictureConversation]) -> torch.Tensor:
        """Mean over the policy's tokens. Rows of one length are forwarded together, so that
        nothing is padded."""
        rows: dict[int, list[tuple[PictureConversation, list[int], list[int]]]] = defaultdict(list)
        for one in batch:
            ids, labels = labelled(one, self._codec, self._place)
            rows[len(ids)].append((one, ids, labels))
        sums = [self._sum(*map(list, zip(*alike, strict=True))) for alike in rows.values()]
        count = sum(label >= 0 for alike in rows.values() for _, _, own in alike for label in own)
        return torch.stack(sums).sum() / count

    def _sum(
        self, batch: list[PictureConversation], rows: list[list[int]], own: list[list[int]]
    ) -> torch.Tensor:
        ids, labels = torch.tensor(rows), torch.tensor(own)
        seen = self._processor(images=_opened(batch), return_tensors="pt")
        logits = self.model(
            input_ids=ids,
            mm_token_type_ids=(ids == self._place).int(),
            pixel_values=seen["pixel_values"],
            image_grid_thw=seen["image_grid_thw"],
        ).logits
        return torch.nn.functional.cross_entropy(
            logits[:, :-1].flatten(0, 1),
            labels[:, 1:].flatten(),
            ignore_index=IGNORED,
            reduction="sum",
        )


def main(
    *,
    model: Annotated[Path, "the untrained policy's folder"],
    output: Output,
    seed: int = 0,
    seeing: Annotated[int, "steps of exercises in seeing"] = SEEING,
    steps: Annotated[int, "steps after those"] = STEPS,
) -> None:
    """Warm the demonstration's policy up."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    imitation = Imitation(model)
    optimizers = _optimizers(imitation.model)
    shown = lessons(seed, seeing * BATCH)
    for step in range(seeing + steps):
        loss = imitation.loss(list(islice(shown, BATCH)))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(imitation.model.parameters(), 1.0)
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["initial_lr"] * _share(step, seeing, steps)
            optimizer.step()
            optimizer.zero_grad()
        if step % 20 == 0 or step == seeing + steps - 1:
            print(f"step {step} of {seeing + steps}, loss {loss.item():.3f}", flush=True)
    shutil.copytree(model, output, dirs_exist_ok=True)
    imitation.model.save_pretrained(output)
    print(f"a warmed-up policy: {output}")


def _optimizers(model: torch.nn.Module) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the decoder and the tower, AdamW for everything else."""
    named = list(model.named_parameters())
    matrices = [p for name, p in named if p.ndim == 2 and "embed" not in name]
    own = {id(matrix) for matrix in matrices}
    others = [p for _, p in named if id(p) not in own]
    decay = 0.01
    found: list[torch.optim.Optimizer] = [
        Muon(matrices, lr=MUON_LR, weight_decay=decay),
        torch.optim.AdamW(others, lr=ADAM_LR, betas=(0.9, 0.98), weight_decay=decay),
    ]
    for optimizer in found:
        for group in optimizer.param_groups:
            group["initial_lr"] = group["lr"]
    return found


def _share(step: int, seeing: int, steps: int) -> float:
    """Share of the rates: they rise, stay while it learns to see, and fall."""
    fallen = max(0, step - seeing) / max(1, steps)
    falling = LEAST + (1 - LEAST) * (1 + math.cos(math.pi * fallen)) / 2
    return min(1.0, (step + 1) / WARMUP) * falling


def _opened(batch: Sequence[PictureConversation]) -> list[Image.Image]:
    return [Image.open(io.BytesIO(one)).convert("RGB") for row in batch for one in row.pictures]
