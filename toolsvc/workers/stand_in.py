"""What answers at the public address while no worker lives.

Health says NOT_SERVING, and every method of ToolService BACKEND_DOWN with the time to come again:
without it nobody could tell a service that is mending itself from one that is not there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc

from toolsvc.edge.service import SERVICE_NAME
from toolsvc.serving import ServiceConfig, make_server
from toolsvc.workers.siblings import unreachable
from toolwright.rpc.errors import abort


@asynccontextmanager
async def standing_in(config: ServiceConfig) -> AsyncIterator[None]:
    """Within the block. ListenError if the address is not to be had."""
    server = make_server(config, config.listen, share_port=True)
    server.add(
        SERVICE_NAME, lambda grpc_server: grpc_server.add_generic_rpc_handlers([_Refusing()])
    )
    await server.start(serving=False)
    try:
        yield
    finally:
        await server.stop(0)


class _Refusing(grpc.GenericRpcHandler):  # type: ignore[misc]
    def service(self, details: Any) -> grpc.RpcMethodHandler | None:
        if details.method.startswith(f"/{SERVICE_NAME}/"):
            return grpc.unary_unary_rpc_method_handler(_refuse)
        return None


async def _refuse(_request: bytes, context: Any) -> None:
    await abort(context, unreachable("no worker lives; new ones are being started"))
