"""What one long sequence takes, said before the run and not by a death at a step's end.

The largest tensors of a step are the logits of its targets: float32, a vocabulary wide, several of
them at a time. A sequence is never split, so the longest one that the recipe allows has to fit.
"""

from __future__ import annotations

import psutil
import torch

from learner.model import device

COPIES = 6
"""Tensors as large as the logits in a backward pass. Measured: 2.9 to 3.8 MiB a target at a
vocabulary of 151,936, which is 5.0 to 6.6 of them."""
GIB = 1 << 30


def logits_bytes(targets: int, vocabulary: int) -> int:
    """What the logits of that many targets take on a rank that holds `vocabulary` of the words."""
    return targets * vocabulary * 4 * COPIES


def free_bytes() -> int:
    """Memory that this rank could still take."""
    if device.has_cuda():
        return int(torch.cuda.mem_get_info()[0])
    return int(psutil.virtual_memory().available)


def too_long(targets: int, vocabulary: int, free: int, *, mend: str) -> str | None:
    """A sentence where a sequence with that many targets does not fit by itself."""
    need = logits_bytes(targets, vocabulary)
    if need <= free:
        return None
    fits = free // logits_bytes(1, vocabulary)
    return (
        f"a sequence with {targets} trained tokens takes about {need / GIB:.1f} GiB for its logits "
        f"alone, and {free / GIB:.1f} GiB are free: {mend} to at most {fits}, or the run may end "
        "without memory"
    )
