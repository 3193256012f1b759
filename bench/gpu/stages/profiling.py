"""Where a step's time goes on the device, and where the host waits for it."""

from __future__ import annotations

import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile

from bench.gpu.stages import Figures, machine

KERNELS = 14
WAITS = 8
FRAMES = 4


def kernels(call: Callable[[], object]) -> Figures:
    """Milliseconds of the most expensive kernels; busy and whole time of the call."""
    machine.wait()
    began = time.monotonic()
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as recorded:
        call()
    whole = time.monotonic() - began
    events = [e for e in recorded.key_averages() if str(e.device_type).endswith("CUDA")]
    events.sort(key=lambda event: -event.self_device_time_total)
    return {
        "whole_ms": round(1000 * whole),
        "busy_ms": round(sum(e.self_device_time_total for e in events) / 1000),
        "launches": sum(e.count for e in events),
        "ms": {
            e.key[:72]: [round(e.self_device_time_total / 1000, 1), e.count]
            for e in events[:KERNELS]
        },
    }


def host_waits(call: Callable[[], object]) -> dict[str, int]:
    """How often the call makes the host wait for the device, by the lines that do it."""
    found: Counter[str] = Counter()

    def note(message: Warning | str, *_rest: object, **_more: object) -> None:
        if "synchroniz" not in str(message):
            return
        frames = [f for f in traceback.extract_stack()[:-1] if "warnings.py" not in f.filename]
        last = frames[: -FRAMES - 1 : -1]
        found[" < ".join(f"{f.filename.rsplit('/', 1)[-1]}:{f.name}" for f in last)] += 1

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = note
        torch.cuda.set_sync_debug_mode("warn")
        try:
            call()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return dict(found.most_common(WAITS))
