"""Imports all generated code and round-trips one message under the interpreter that runs this.

CI runs it with the oldest and with the newest protobuf runtime that the project supports.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import google.protobuf
import grpc

ROOT = Path(__file__).resolve().parent


def main() -> None:
    sys.path.insert(0, str(ROOT))
    names = sorted(
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in ROOT.glob("toolwright/*/v1/*_pb2*.py")
    )
    for name in names:
        importlib.import_module(name)
    from toolwright.common.v1 import trajectory_pb2

    sent = trajectory_pb2.Segment(token_ids=b"\1\0\0\0", token_count=1, trainable=True)
    if trajectory_pb2.Segment.FromString(sent.SerializeToString()) != sent:
        sys.exit("a message did not survive its own bytes")
    print(
        f"contracts: {len(names)} generated modules import with protobuf "
        f"{google.protobuf.__version__} and grpcio {grpc.__version__}"
    )


if __name__ == "__main__":
    main()
