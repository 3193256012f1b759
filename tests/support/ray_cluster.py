"""A Ray cluster of two nodes on this machine's loopback: `python -m tests.support.ray_cluster`.

Prints its address and the processes of its nodes as one line of JSON, and lives until its standard
input ends. What is below a node's raylet is the node: killing all of it is a machine without power.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

ENVIRONMENT = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # loopback alone
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),
    "RAY_USAGE_STATS_ENABLED": "0",
}
MIB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class RayCluster:
    address: str
    head: int
    """Process id of its raylet."""
    second: int

    def kill_second(self) -> None:
        """All of it in one moment, as far as that goes."""
        raylet = psutil.Process(self.second)
        below = raylet.children(recursive=True)
        for process in (raylet, *below):
            process.suspend()
        for process in (raylet, *below):
            process.kill()

    def node_of(self, pid: int) -> int:
        """Process id of the raylet that an actor's process belongs to."""
        return next(
            one.pid for one in psutil.Process(pid).parents() if one.pid in (self.head, self.second)
        )


@contextmanager
def ray_cluster(**resources: Any) -> Iterator[RayCluster]:
    """`resources`: of each of the two nodes, in the words of `ray.init`. Nothing of it is left
    after the block."""
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as folder:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.ray_cluster", folder, json.dumps(resources)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
            env={**os.environ, **ENVIRONMENT, "RAY_TMPDIR": folder},
        )
        below: list[psutil.Process] = []
        try:
            said = process.stdout.readline()
            assert said, "the Ray cluster did not start"
            below = psutil.Process(process.pid).children(recursive=True)
            yield RayCluster(**json.loads(said))
        finally:
            process.communicate(timeout=60)
            assert not psutil.wait_procs(below, timeout=20)[1], "processes of Ray are left over"


def main() -> None:
    from ray.cluster_utils import Cluster

    folder, resources = Path(sys.argv[1], "ray"), json.loads(sys.argv[2])
    folder.mkdir()  # where Ray writes the address, which it takes to be there
    cluster = Cluster()
    nodes = [
        cluster.add_node(
            object_store_memory=80 * MIB,
            include_dashboard=False,
            temp_dir=str(folder),
            **resources,
        )
        for _ in range(2)
    ]
    head, second = (node.all_processes["raylet"][0].process.pid for node in nodes)
    print(json.dumps({"address": cluster.address, "head": head, "second": second}), flush=True)
    sys.stdin.read()
    cluster.shutdown()


if __name__ == "__main__":
    main()
