"""Requests as they come in with the token of an owner."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from toolwright.rpc.auth import Tokens

OWNERS = ("alice", "bob")
TOKENS = Tokens("unbound", {f"token-of-{owner}": owner for owner in OWNERS})


def token_of(owner: str) -> str:
    """ "" = that which is bound to nobody."""
    return f"token-of-{owner}" if owner else "unbound"


@contextmanager
def asking_as(owner: str) -> Iterator[None]:
    """What happens in the block is asked for by this owner."""
    assert TOKENS.let_in(f"Bearer {token_of(owner)}")
    try:
        yield
    finally:
        assert Tokens().let_in("")
