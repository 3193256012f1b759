"""Framing between host and session."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolsvc.sandbox.jailed import wire


@given(st.binary(max_size=4 * wire.PACKET_BYTES))
def test_what_is_split_is_joined_again(message: bytes) -> None:
    assembler = wire.Assembler(len(message))
    packets = wire.split(message)
    assert all(len(packet) <= wire.PACKET_BYTES for packet in packets)
    joined = [assembler.feed(packet) for packet in packets]
    assert joined[:-1] == [None] * (len(packets) - 1)
    assert joined[-1] == message


@given(st.binary(max_size=64))
def test_a_hostile_packet_is_a_wire_error_or_a_message(packet: bytes) -> None:
    try:
        message = wire.Assembler(32).feed(packet)
        if message is not None:
            wire.parse_done(message)
    except wire.WireError:
        pass


def test_a_message_above_the_limit_is_refused_before_it_is_held() -> None:
    assembler = wire.Assembler(10)
    assert assembler.feed(bytes((wire.MORE,)) + b"x" * 8) is None
    with pytest.raises(wire.WireError):
        assembler.feed(bytes((wire.MORE,)) + b"x" * 8)
