"""The learning rate over steps: warm-up, then constant, linear or cosine decay. Pure."""

from __future__ import annotations

import math

from learner.config.weights import Optimizer


def fraction(settings: Optimizer, step: int, steps: int) -> float:
    """Share of the peak rate for update number `step` (from 0) of `steps`.

    Warm-up multiplies the decay: step w-1 of w warm-up steps is the first at full share. A warm-up
    ratio is a share of all steps, rounded up.
    """
    done = min(1.0, step / max(1, steps))
    low = settings.min_fraction
    if settings.decay == "linear":
        decayed = 1.0 - (1.0 - low) * done
    elif settings.decay == "cosine":
        decayed = low + (1.0 - low) * 0.5 * (1.0 + math.cos(math.pi * done))
    else:
        decayed = 1.0
    warmup = settings.warmup_steps or math.ceil(settings.warmup_ratio * steps)
    warm = min(1.0, (step + 1) / warmup) if warmup else 1.0
    return warm * decayed
