"""The learner's side of a group of processes, as a process of its own: gloo on the loopback.

    python tests/support/rank0.py MODEL.safetensors

Prints the port of its store. Then reads a JSON object a line and answers each with one: `{"join":
NAME, "world_size": N}` makes the group, `{"broadcast": [NAMES]}` sends those tensors of the file.
Made with torch's own means, as SGLang makes its side, without SGLang.
"""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from safetensors.torch import load_file
from torch.distributed import PrefixStore, TCPStore
from torch.distributed.distributed_c10d import Backend, _new_process_group_helper, _world

PATIENCE = timedelta(seconds=60)


def main() -> None:
    weights = load_file(sys.argv[1])
    store = TCPStore("127.0.0.1", 0, None, True, timeout=PATIENCE, wait_for_workers=False)
    print(json.dumps({"port": store.port}), flush=True)
    group: Any = None
    for line in sys.stdin:
        asked = json.loads(line)
        if name := asked.get("join"):
            size = asked["world_size"]
            group, _ = _new_process_group_helper(
                size, 0, [], Backend("gloo"), PrefixStore(name, store),
                group_name=name, timeout=PATIENCE,
            )  # fmt: skip
            _world.pg_group_ranks[group] = {rank: rank for rank in range(size)}
        for name in asked.get("broadcast", ()):
            dist.broadcast(weights[name].contiguous(), src=0, group=group)
        print(json.dumps({"done": asked}), flush=True)


if __name__ == "__main__":
    main()
