"""Who is let in: bearer tokens, and the owners that some of them are bound to.

Every door of every process asks here, whatever protocol it speaks.

Invariants
- A token is bound to one owner, or to nobody. Whoever comes with one that is bound to nobody, or
  without any where none is asked for, is "".
- What `caller` opened is that caller's alone; "" is no exception. Doors say who it is before
  anything of a request is read, and it holds for all that the request causes.
- Tokens are found by their digest, so that the time of a refusal tells nothing about them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from contextvars import ContextVar
from pathlib import Path

from toolwright.rpc import options
from toolwright.rpc.errors import ListenError

_CALLER: ContextVar[str] = ContextVar("toolwright_caller", default="")


class Tokens:
    """What a door takes. False where it asks for none."""

    __slots__ = ("_owners",)

    def __init__(self, unbound: str = "", bound: Mapping[str, str] | None = None) -> None:
        """`unbound`: a token that is bound to nobody, "" = none. `bound`: owners by token."""
        owners = dict(bound or {})
        if unbound:
            owners[unbound] = ""
        self._owners = {_digest(f"Bearer {token}"): owner for token, owner in owners.items()}

    def __bool__(self) -> bool:
        return bool(self._owners)

    def let_in(self, authorization: str | bytes) -> bool:
        """Whether a request with this header (or metadata) may go on; then `caller` says whose it
        is, in the task that asked and in those that it starts."""
        owner = self._owners.get(_digest(authorization)) if self._owners else ""
        if owner is None:
            return False
        _CALLER.set(owner)
        return True


class TokenOnBehalf(Tokens):
    """What a door takes that is for another process of the same service alone: one token, and the
    word of whoever has it for whom it asks (`on_behalf`)."""

    __slots__ = ()

    def __init__(self, token: str) -> None:
        super().__init__(token)

    def let_in(self, authorization: str | bytes) -> bool:
        if isinstance(authorization, bytes):
            authorization = authorization.decode("utf-8", "surrogateescape")
        token, _, whose = authorization.rpartition(".")
        if not super().let_in(token):
            return False
        _CALLER.set(bytes.fromhex(whose).decode())
        return True


def on_behalf(token: str) -> str:
    """The header with which a service asks its own processes for `caller`, whose name may be any
    word."""
    return f"Bearer {token}.{caller().encode().hex()}"


def caller() -> str:
    """The owner whose token the request came with; "" = no owner's, or no request."""
    return _CALLER.get()


def tokens_here() -> Tokens:
    """The token of this process's environment, and those of the file that it names. ListenError if
    that cannot be used."""
    unbound = os.environ.get(options.TOKEN_VARIABLE, "")
    file = os.environ.get(options.TOKENS_VARIABLE, "")
    return Tokens(unbound, _read(Path(file), unbound) if file else None)


def _read(file: Path, unbound: str) -> dict[str, str]:
    """Owners by token, from lines of an owner and a token."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ListenError(f"tokens {file}: {error}; give a text file that can be read") from error
    bound: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 2:
            raise ListenError(f"tokens {file}, line {number}: write an owner, a space, a token")
        owner, token = words
        if token in bound or token == unbound:
            raise ListenError(
                f"tokens {file}, line {number}: the token stands there twice, or is that of "
                f"{options.TOKEN_VARIABLE}; give each its own"
            )
        bound[token] = owner
    if not bound:
        raise ListenError(f"tokens {file} holds none; write an owner and a token on a line")
    return bound


def _digest(authorization: str | bytes) -> bytes:
    if isinstance(authorization, str):
        # Headers may hold any bytes; where they are no UTF-8 they come as surrogates.
        authorization = authorization.encode("utf-8", "surrogateescape")
    return hashlib.sha256(authorization).digest()
