"""What goes wrong between processes, over a real connection: how it arrives, what is retried."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest

from tests.support.net import free_port
from tests.support.rpc_service import Service, list_tools, served, stub
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.rpc import errors
from toolwright.rpc.channel import backoff, call, may_retry
from toolwright.rpc.errors import ServiceError, TransportError
from toolwright.tool.v1 import tool_pb2 as pb


async def test_an_error_arrives_as_it_was_raised() -> None:
    raised = ServiceError(
        reasons.ERROR_REASON_QUEUE_LIMIT,
        "the queue is full: 3 wait ü",
        subject="call/1",
        endpoint="10.0.0.1:5",
        fix="ask again",
        retry_after=1.5,
    )
    async with served(Service(raised)) as address:
        with pytest.raises(ServiceError) as caught:
            await list_tools(address)
    got = caught.value
    assert vars(got) == vars(raised)
    assert got.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert str(got) == "QUEUE_LIMIT: the queue is full: 3 wait ü (ask again)"
    assert may_retry(got)
    assert backoff(7, got) == 1.5


@pytest.mark.parametrize(
    ("reason", "passes"),
    [
        (reasons.ERROR_REASON_QUEUE_LIMIT, False),
        (reasons.ERROR_REASON_BACKEND_DOWN, False),
        (reasons.ERROR_REASON_DRAINING, True),
    ],
)
async def test_without_retry_info_nothing_is_sent_again_but_to_who_shuts_down(
    reason: int, passes: bool
) -> None:
    async with served(Service(ServiceError(reason, "not now"))) as address:
        with pytest.raises(ServiceError) as caught:
            await list_tools(address)
    assert caught.value.retry_after is None
    assert may_retry(caught.value) == passes


@pytest.mark.parametrize("reason", reasons.ErrorReason.values())
def test_every_reason_has_the_code_that_the_contract_names(reason: int) -> None:
    """The comment of each reason in reasons.proto begins with its status code."""
    name = reasons.ErrorReason.Name(reason)  # type: ignore[arg-type]
    if reason == reasons.ERROR_REASON_UNSPECIFIED:
        return
    proto = Path(reasons.DESCRIPTOR.name)
    root = Path(errors.__file__).parents[2]
    lines = [line.strip() for line in (root / proto).read_text(encoding="utf-8").splitlines()]
    at = next(i for i, line in enumerate(lines) if line.startswith(f"{name} ="))
    first = at - 1
    while lines[first - 1].startswith("//"):
        first -= 1
    promised = lines[first].removeprefix("// ").partition(":")[0].partition(" ")[0]
    assert ServiceError(reason, "").code.name == promised


async def test_a_fault_is_internal_and_keeps_the_server_alive() -> None:
    service = Service(KeyError("x"))
    async with served(service) as address:
        with pytest.raises(ServiceError, match="KeyError") as caught:
            await list_tools(address)
        assert caught.value.reason == reasons.ERROR_REASON_INTERNAL
        assert not may_retry(caught.value)
        service.error = None
        assert (await list_tools(address)).service == "here"


async def test_nobody_there_is_a_transport_error() -> None:
    port = free_port()
    said = f"UNAVAILABLE: no connection to 127.0.0.1:{port}: connection refused"
    with pytest.raises(TransportError, match=said) as caught:
        await list_tools(f"127.0.0.1:{port}")
    assert may_retry(caught.value)


async def test_what_is_not_served_says_so() -> None:
    async with served(Service()) as address, stub(address) as service:
        with pytest.raises(TransportError) as caught:
            await call(service.SnapshotSession, pb.SnapshotSessionRequest(), timeout=10)
    assert caught.value.code is grpc.StatusCode.UNIMPLEMENTED
    assert not may_retry(caught.value)
    assert errors.not_served("X").code is grpc.StatusCode.UNIMPLEMENTED


def test_backoff_grows_and_stays_bounded() -> None:
    for word, pause in ((1e11, 30.0), (float("inf"), 30.0), (-5.0, 0.01), (0.0, 0.01)):
        asks = ServiceError(reasons.ERROR_REASON_DRAINING, "later", retry_after=word)
        assert backoff(0, asks) == pause
    for attempt in range(20):
        assert 0 < backoff(attempt) <= 5
    assert min(backoff(10) for _ in range(20)) > max(backoff(0) for _ in range(20))


@pytest.mark.parametrize("size", [20_000, 1 << 20])
@pytest.mark.parametrize("letter", ["x", "ü", "\U0001f600", "\n"])
async def test_a_refusal_arrives_typed_however_much_it_has_to_say(letter: str, size: int) -> None:
    """gRPC drops trailers of more than a few KiB, and with them the reason."""
    text = letter * size
    raised = ServiceError(
        reasons.ERROR_REASON_SESSION_NOT_FOUND,
        text, subject=text, endpoint=text, fix=text, retry_after=1.0,
    )  # fmt: skip
    async with served(Service(raised)) as address:
        with pytest.raises(ServiceError) as caught:
            await list_tools(address)
    got = caught.value
    assert (got.reason, got.retry_after) == (raised.reason, 1.0)
    for part in (got.message, got.subject, got.endpoint, got.fix):
        assert part.startswith(letter * 100)
        assert part.endswith("…")


@pytest.mark.parametrize(
    ("details", "said"),
    [
        (
            "failed to connect to all addresses; last error: UNKNOWN: ipv6:%5B::1%5D:9: Failed to "
            "connect to remote host: connect: Connection refused (111)",
            "no connection to [::1]:9: connection refused",
        ),
        (
            "errors resolving no.such:9: [field:hostname lookup error:address lookup failed for "
            "no.such:9: Domain name not found]",
            "no address for no.such:9: domain name not found",
        ),
        ("failed to connect to all addresses; last error: ", None),
        ("errors resolving " + "a: A" * 100_000 + " [", None),
    ],
)
def test_what_grpc_says_of_connections_is_said_in_a_sentence(
    details: str, said: str | None
) -> None:
    assert errors.readable(details) == (details if said is None else said)


def test_a_request_without_an_answer_may_be_sent_again() -> None:
    code = grpc.StatusCode
    for passes in (code.UNAVAILABLE, code.DEADLINE_EXCEEDED, code.CANCELLED):
        assert may_retry(TransportError(passes, "why"))
    for stays in (code.UNAUTHENTICATED, code.UNIMPLEMENTED, code.RESOURCE_EXHAUSTED):
        assert not may_retry(TransportError(stays, "why"))
