"""The floor: a ToolService that answers at once and does nothing, in a process of its own.

Every answer is a ready message. So the floor shows the cost of gRPC on this machine, with the same
requests, event loop and client. `python -m bench.tools.load.floor` prints its address.
"""

from __future__ import annotations

import gc
from typing import Any

import grpc
import grpc.aio

from toolwright.process import loop
from toolwright.process.stop_signals import stop_event
from toolwright.rpc import options
from toolwright.tool.v1 import tool_pb2 as pb


def _answers(request: Any, answer: Any) -> grpc.RpcMethodHandler:
    async def handle(_request: Any, _context: Any) -> Any:
        return answer

    return grpc.unary_unary_rpc_method_handler(
        handle,
        request_deserializer=request.FromString,
        response_serializer=type(answer).SerializeToString,
    )


_HANDLERS = {
    "OpenSession": _answers(pb.OpenSessionRequest, pb.OpenSessionResponse()),
    "CallTool": _answers(pb.CallToolRequest, pb.CallToolResponse(result=pb.CallResult())),
    "CloseSession": _answers(pb.CloseSessionRequest, pb.CloseSessionResponse(closed=True)),
}


async def serve() -> None:
    """Serves on a free loopback port until SIGTERM."""
    stop = stop_event()
    server = grpc.aio.server(options=options.SERVER)
    name = pb.DESCRIPTOR.services_by_name["ToolService"].full_name
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, _HANDLERS),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    gc.collect()
    gc.freeze()
    gc.disable()  # It keeps nothing: a floor has no pauses.
    print(f"serving nothing on 127.0.0.1:{port}", flush=True)
    await stop.wait()
    await server.stop(1.0)


if __name__ == "__main__":
    loop.run(serve())
