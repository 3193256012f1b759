"""Shots and rounds as a run would leave them."""

from __future__ import annotations

from google.protobuf.duration_pb2 import Duration

from bench.tools.load.fleet import Shot
from bench.tools.load.workloads import Action
from bench.tools.reading.figures import Window
from bench.tools.trial import Round
from toolwright.tool.v1 import tool_pb2 as pb

HELLO = Action(text="<python>hello</python>", says="hello")


def shot(
    milliseconds: float,
    *,
    queued: float = 0.0,
    ran: float = 0.0,
    late: float = 0.0,
    said: str = "hello",
    began: float = 100.0,
) -> Shot:
    """Answered so many milliseconds after `began`, the instant at which it was due."""
    result = pb.CallResult(
        observation=[pb.ObservationPart(text=said)],
        valid=True,
        queued=Duration(nanos=round(queued * 1e6)),
        run=Duration(nanos=round(ran * 1e6)),
        isolation="full",
    )
    return Shot(
        action=HELLO,
        intended=began,
        sent=began + late / 1000,
        answered=began + milliseconds / 1000,
        result=result,
    )


def window(*shots: Shot, seconds: float = 1.0, server_cpu_s: float | None = 0.006) -> Window:
    return Window(
        began=100.0, seconds=seconds, shots=shots, client_cpu_s=0.002, server_cpu_s=server_cpu_s
    )


def one_round(*milliseconds: float, slower: float = 2.0) -> Round:
    """Ours is `slower` times the floor."""
    return Round(
        ours=window(*(shot(slower * one, queued=0.25, ran=0.5) for one in milliseconds)),
        floor=window(*(shot(one, said="") for one in milliseconds)),
    )
