"""A tool service's `create_and_execute` as a runner: each run is a session of its own, so that no
tool sees what another one did.

A tool that fails is an outcome. A service that cannot run the tool raises ChecksDown after some
retries, because that says nothing about the tool.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from google.protobuf.duration_pb2 import Duration

from memory.checks.runner import Outcome, Run
from memory.errors import ChecksDown
from toolwright.json_data import exact_json, struct
from toolwright.rpc import options
from toolwright.tool.v1 import tool_pb2 as pb
from toolwright.tool.v1 import tool_pb2_grpc

TOOL = "create_and_execute"
SIDE_BY_SIDE = 4
RUN_S, QUEUE_S, WAIT_S, LEASE_S = 10, 60, 20, 300
"""Limits in seconds: a tool's run, its wait for a turn, one RPC, a session's lease."""
DEADLINE_S = 90.0
RETRIES = 3
DESCRIPTION = 1000
"""Characters that `create_and_execute` takes of a description."""


class ToolServiceRunner:
    """Thread-safe."""

    def __init__(self, address: str, token: str = "") -> None:
        """address: host:port or unix:/path. It connects at the first call."""
        self._address = address
        self._channel = grpc.insecure_channel(address, options=options.channel_options(address))
        self._stub: Any = tool_pb2_grpc.ToolServiceStub(self._channel)
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()
        self._owner = f"memory-{uuid.uuid4().hex}"

    def run(self, runs: Sequence[Run]) -> Sequence[Outcome]:
        """Raises ChecksDown if the service cannot run the tools."""
        with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
            return list(pool.map(self._run, runs))

    def close(self) -> None:
        self._channel.close()

    def _run(self, run: Run) -> Outcome:
        for retry in range(RETRIES):
            try:
                return self._once(run)
            except grpc.RpcError as error:
                if retry == RETRIES - 1:
                    raise ChecksDown(
                        f"the tool service at {self._address}, which checks tools, does not run "
                        f"them: {_told(error)}"
                    ) from error
                time.sleep(0.2 * 4**retry)
        raise AssertionError("the last retry raises")

    def _once(self, run: Run) -> Outcome:
        session = f"check-{uuid.uuid4().hex}"
        opening = pb.OpenSessionRequest(
            session_id=session,
            owner=self._owner,
            lease=Duration(seconds=LEASE_S),
            tools=[TOOL],
            queue_limit=Duration(seconds=QUEUE_S),
        )
        self._ask(self._stub.OpenSession, opening)
        try:
            return self._called(session, run)
        finally:
            # A session that is not closed now ends with its lease.
            closing = self._stub.CloseSession.future(
                pb.CloseSessionRequest(session_id=session),
                timeout=DEADLINE_S,
                metadata=self._metadata,
            )
            closing.add_done_callback(lambda done: done.exception())

    def _called(self, session: str, run: Run) -> Outcome:
        try:
            arguments = _arguments(run)
            fields = struct(arguments)
        except (ValueError, TypeError, AttributeError) as error:
            return Outcome(error=f"it cannot be called: {error}"[:500])
        request = pb.CallToolRequest(
            session_id=session,
            call_id=f"{session}/0",
            tool=TOOL,
            arguments=fields,
            arguments_json=exact_json(arguments),
            queue_limit=Duration(seconds=QUEUE_S),
            run_limit=Duration(seconds=RUN_S),
            wait=Duration(seconds=WAIT_S),
        )
        while True:
            answer = self._ask(self._stub.CallTool, request)
            if answer.HasField("result"):
                return _outcome(answer.result)

    def _ask(self, method: Callable[..., Any], request: Any) -> Any:
        return method(request, timeout=DEADLINE_S, metadata=self._metadata)


def _arguments(run: Run) -> dict[str, Any]:
    inputs = json.loads(run.inputs)
    schema = run.tool.schema
    return {
        "name": run.tool.name,
        "description": run.tool.description[:DESCRIPTION],
        # A tool without a schema takes the arguments that it was called with.
        "arguments": dict(schema) if schema else {name: {} for name in inputs},
        "code": run.tool.code,
        "inputs": inputs,
    }


def _outcome(result: pb.CallResult) -> Outcome:
    text = "".join(part.text for part in result.observation)
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        told = None
    if isinstance(told, dict) and told.get("creation_success") is True:
        return Outcome(result=told.get("execution_result"))
    error = told.get("error") if isinstance(told, dict) else None
    return Outcome(
        error=str(error or result.error.message or result.invalid_reason or text)[:500]
        or "it gave no result"
    )


def _told(error: grpc.RpcError) -> str:
    return f"{error.code().name}: {error.details()}"[:300]
