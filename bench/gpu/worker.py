"""The process that runs stages: `python -m bench.gpu.worker [--small] STAGE...`.

Writes one JSON line a stage and ends after the first stage that fails. Without a GPU and without
--small no stage runs: each line says so.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
import traceback
from collections.abc import Sequence

from learner.ranks import device

FRAMES = 6


def main(arguments: Sequence[str]) -> int:
    lines = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # libraries print there, too
    device.install()  # before Megatron is imported
    from bench.gpu.stages import STAGES, Scale
    from bench.gpu.stages.machine import forget_peak
    from learner.ranks import parallel

    scale = Scale(small="--small" in arguments)
    names = [name for name in arguments if not name.startswith("--")]
    if not scale.small and not device.has_cuda():
        for name in names:
            found = {"stage": name, "failed": _no_gpu(), "seconds": 0.0, "alive": True}
            print(json.dumps(found), file=lines, flush=True)
        return 1
    with parallel.ranks(seed=1):
        for name in names:
            began = time.monotonic()
            line: dict[str, object] = {"stage": name}
            try:
                line["figures"] = STAGES[name].run(scale)
            except Exception as error:  # noqa: BLE001 - whatever a stage raises is its result
                line["failed"] = f"{type(error).__name__}: {error}"[:400]
                line["where"] = traceback.format_exc().splitlines()[-FRAMES:-1]
            line["seconds"] = round(time.monotonic() - began, 1)
            print(json.dumps(line, default=str), file=lines, flush=True)
            if "failed" in line:
                return 1
            gc.collect()
            forget_peak()
    return 0


def _no_gpu() -> str:
    import torch

    build = f"is built for CUDA {torch.version.cuda}" if torch.version.cuda else "is a CPU build"
    return (
        f"torch {torch.__version__} {build} and finds no GPU: look at nvidia-smi and "
        "CUDA_VISIBLE_DEVICES, or give --small for sizes that a CPU serves"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
