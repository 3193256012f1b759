"""The history of a crowd's run, put together from what each witness wrote.

Witnesses: the harness (lives, faults, the engine's status), the tool (sessions, effects), the
samplers' logs (requests), the consumer (offers, steps, marks), and the run folder after the end.
All of them read the machine's monotonic clock.
"""

from __future__ import annotations

import json
import time
import urllib.request
from contextlib import closing

import grpc
from msgspec import structs

from bench.history.events import AnyEvent, Finished, Offered, SessionClosed, SessionOpened
from bench.history.run_folder import evaluations, positions, stored_hashes, surviving
from bench.history.sampler_log import sampled
from bench.history.stored import read_appended
from engine.serving.journal.reader import JournalReader
from tests.chaos.crowd import RPC_S, Crowd, Sampler
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.rpc import options
from toolwright.rpc.errors import ServiceError, from_rpc_error
from toolwright.tool.v1 import tool_pb2, tool_pb2_grpc

REAP_S = 5.0
"""Time after a lease's end in which the tool service reaps its session, in seconds."""


def history_of(crowd: Crowd) -> list[AnyEvent]:
    """All events in order of their time; the engine has ended, and its neighbours are up.

    A session whose closing failed may live until its lease ends, and is waited for.
    """
    ended = time.monotonic()
    requests = sum(map(_requests, crowd.samplers))
    sessions = _sessions(crowd, ended + crowd.lease_s + REAP_S)
    with closing(JournalReader(crowd.run_folder)) as reader:
        attempts = {
            record.attempt.rpartition("/")[0]: record.attempt
            for group in reader.groups()
            for record in group
        }
    hashes = stored_hashes(crowd.run_folder)
    seen = [
        *crowd.events,
        *read_appended(crowd.effects_file),
        *(_whole(event, attempts, hashes) for event in read_appended(crowd.history_of_consumer)),
    ]
    for one in crowd.samplers:
        seen += sampled(one.log, one.name)
    seen.sort(key=lambda event: event.at)
    end = max(seen[-1].at, ended)
    return [
        *seen,
        Finished(at=end, complete=crowd.complete, sessions=sessions, requests=requests),
        *evaluations(crowd.run_folder, at=end),
        *positions(crowd.run_folder, at=end, trained=surviving(seen)),
    ]


def _requests(one: Sampler) -> int:
    """In flight at a sampler, by its own count."""
    with urllib.request.urlopen(f"http://127.0.0.1:{one.port}/v1/loads", timeout=RPC_S) as page:
        loads = json.loads(page.read())["loads"]
    return sum(int(load["num_total_reqs"]) for load in loads)


def _sessions(crowd: Crowd, deadline: float) -> int:
    """Sessions that the tool service holds, once none is left or at the deadline."""
    while held := _held(crowd):
        if time.monotonic() > deadline:
            break
        time.sleep(0.2)
    return held


def _held(crowd: Crowd) -> int:
    """How many of the sessions that were opened and not closed the service still has."""
    seen = [*crowd.events, *read_appended(crowd.effects_file)]
    opened = {event.session for event in seen if isinstance(event, SessionOpened)}
    opened -= {event.session for event in seen if isinstance(event, SessionClosed)}
    return sum(_is_held(session, crowd.tools_address) for session in opened)


def _is_held(session: str, address: str) -> bool:
    """Whether the service has the session, at this address or at the one that it names."""
    with grpc.insecure_channel(address, options=options.CHANNEL) as channel:
        stub = tool_pb2_grpc.ToolServiceStub(channel)
        try:
            stub.GetSession(tool_pb2.GetSessionRequest(session_id=session), timeout=RPC_S)
        except grpc.RpcError as error:
            said = from_rpc_error(error)
            if (
                isinstance(said, ServiceError)
                and said.reason == reasons.ERROR_REASON_WRONG_ENDPOINT
            ):
                return _is_held(session, said.endpoint)
            assert isinstance(said, ServiceError), f"{session}: {said}"
            return False
    return True


def _whole(event: AnyEvent, attempts: dict[str, str], hashes: dict[int, str]) -> AnyEvent:
    """An offer with what the journal knows: its hash, attempts also of members without a call."""
    if not isinstance(event, Offered):
        return event
    members = tuple(
        structs.replace(one, attempt=attempts.get(one.trajectory, one.attempt))
        for one in event.members
    )
    return structs.replace(event, members=members, stored_hash=hashes.get(event.sequence, ""))
