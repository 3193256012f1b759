"""Options that client and server share: message size, keepalive, addresses."""

from __future__ import annotations

import ipaddress

MESSAGE_LIMIT = 64 << 20
"""Size of the largest message, in bytes; see the contracts."""

TOGETHER_BYTES = 1 << 18
"""Bytes after which a message of StreamCalls takes no further request or response."""

PIECE_BYTES = 1 << 20
"""Largest piece of a blob in one message of PutBlob or GetBlob, in bytes; see the contracts."""

LONGEST_WAIT = 30.0
"""Seconds that one RPC may wait for a call's result, so that no proxy cuts it."""

MOST_PENDING = 65_536
"""Requests that a server has received and not yet begun; more are cancelled."""

TOKEN_VARIABLE = "TOOLWRIGHT_TOKEN"
"""Environment variable with the bearer token, the same for servers and clients."""

TOKENS_VARIABLE = "TOOLWRIGHT_TOKENS_FILE"
"""Environment variable of servers: a file of tokens, each with its owner."""

CHANNEL = (
    ("grpc.max_send_message_length", MESSAGE_LIMIT),
    ("grpc.max_receive_message_length", MESSAGE_LIMIT),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # The default is two minutes: after an outage that long, the client would wait as long again.
    ("grpc.max_reconnect_backoff_ms", 5_000),
)

SERVER = (
    *CHANNEL[:2],
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    # CHANNEL pings an idle connection too. By default a server ends it after the third such ping.
    ("grpc.keepalive_permit_without_calls", 1),
    # gRPC cancels requests once about a thousand wait to be handed on. Bursts of thousands of calls
    # are what these servers are for, and each call has a queue limit of its own.
    ("grpc.server.max_pending_requests", MOST_PENDING),
    ("grpc.server.max_pending_requests_hard_limit", MOST_PENDING),
    # By default gRPC shares a port with any process that does the same: that process would get
    # half of the clients.
    ("grpc.so_reuseport", 0),
)

PROBED = (("grpc.max_receive_message_length", 4096), *SERVER[2:])
"""Options of the health address: a request holds the name of a service alone."""


def channel_options(address: str) -> tuple[tuple[str, int], ...]:
    """CHANNEL, and for an address on this machine no proxy of the environment."""
    return (*CHANNEL, ("grpc.enable_http_proxy", 0)) if is_local(address) else CHANNEL


def is_unix(address: str) -> bool:
    """True for Unix sockets, those in the abstract namespace included."""
    return address.startswith(("unix:", "unix-abstract:"))


def is_local(address: str) -> bool:
    """True for loopback TCP addresses and Unix sockets."""
    if is_unix(address):
        return True
    host = address.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def may_have_token(address: str, typed: str = "") -> bool:
    """Whether the bearer token may go to an address that a file names: a run folder, a journal.

    Such a file may be hostile. typed: the address that the user or the recipe gave.
    """
    return is_local(address) or address == typed
