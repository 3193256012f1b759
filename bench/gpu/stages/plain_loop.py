"""What a plain loop of transformers does with the same rows: the figure to beat."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM

from bench.gpu.stages import Figures, machine
from learner.ranks import device
from learner.training.batch import Row


def plain_loop(folder: Path, rows: list[Row]) -> Figures:
    """A row at a time, whole logits, fused AdamW on bfloat16 weights without float32 masters."""
    model: Any = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.bfloat16, trust_remote_code=False, attn_implementation="sdpa"
    )
    model.to(device.device())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=device.has_cuda())
    tokens = sum(row.length for row in rows)
    seconds = []
    machine.forget_peak()
    for _ in range(2):
        machine.wait()
        began = time.monotonic()
        for row in rows:
            ids = torch.from_numpy(row.tokens).to(device.device())[None]
            logits = model(ids[:, :-1], use_cache=False).logits[0]
            logp = -F.cross_entropy(logits.float(), ids[0, 1:], reduction="none")
            advantage = torch.from_numpy(row.advantage[1:]).to(device.device())
            (-(logp * advantage).sum() / tokens).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        machine.wait()
        seconds.append(time.monotonic() - began)
    return {"tokens_per_s": round(tokens / min(seconds)), "peak_gb": machine.peak_gb()}
