"""Bearer tokens, and the owners that some of them are bound to.

Every server of every process checks its requests here, for each protocol.

Invariants
- A token is bound to one owner, or to no owner. The caller is "" for a token without an owner. It
  is "" too for a request without a token, if no token is required.
- A session belongs to the `caller` that opened it; this holds for "" too. A server sets `caller`
  before it reads a request, and `caller` holds for all work of the request.
- Tokens are found by their digest, so the time of a refusal reveals nothing about them.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Mapping
from contextvars import ContextVar
from pathlib import Path

from toolwright.rpc import options
from toolwright.rpc.errors import ListenError

_CALLER: ContextVar[str] = ContextVar("toolwright_caller", default="")


class Tokens:
    """Tokens that a server accepts. False if it requires no token."""

    __slots__ = ("_owners",)

    def __init__(self, unbound: str = "", bound: Mapping[str, str] | None = None) -> None:
        """unbound: a token without an owner, "" = no such token. bound: owners by token."""
        owners = dict(bound or {})
        if unbound:
            owners[unbound] = ""
        self._owners = {_digest(f"Bearer {token}"): owner for token, owner in owners.items()}

    def __bool__(self) -> bool:
        return bool(self._owners)

    def let_in(self, authorization: str | bytes) -> bool:
        """Whether a request with this header (or metadata) is accepted. If it is, `caller` returns
        its owner in this task and in the tasks that it starts."""
        owner = self._owners.get(_digest(authorization)) if self._owners else ""
        if owner is None:
            return False
        _CALLER.set(owner)
        return True


class TokenOnBehalf(Tokens):
    """The token between processes of one service. Its holder also names the owner that a request is
    made for (`on_behalf`)."""

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
    """The header of a request to another process of the service, on behalf of `caller`. The name of
    an owner may be any word."""
    return f"Bearer {token}.{caller().encode().hex()}"


def caller() -> str:
    """The owner of the request's token; "" = a token without an owner, or no request."""
    return _CALLER.get()


def tokens_here() -> Tokens:
    """The token of this process's environment."""
    return Tokens(os.environ.get(options.TOKEN_VARIABLE, ""))


def service_tokens() -> Tokens:
    """The token of this process's environment, and those of owners in the file that it names.

    For tool services alone: a session belongs to an owner there. Engine, memory and viewer have no
    owners, so an owner's token is refused there. Raises ListenError if the file cannot be used.
    """
    unbound = os.environ.get(options.TOKEN_VARIABLE, "")
    file = os.environ.get(options.TOKENS_VARIABLE, "")
    return Tokens(unbound, _read(Path(file), unbound) if file else None)


def readable_by_others() -> str:
    """The warning for a tokens file that every user of the machine can read; else ""."""
    file = os.environ.get(options.TOKENS_VARIABLE, "")
    try:
        others = bool(file) and bool(os.stat(file).st_mode & stat.S_IROTH)
    except OSError:
        return ""
    return f"every user of this machine can read the tokens in {file}: chmod 600" if others else ""


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
        raise ListenError(f"tokens {file} holds no token: write an owner and a token on a line")
    return bound


def _digest(authorization: str | bytes) -> bytes:
    if isinstance(authorization, str):
        # Headers may hold any bytes; bytes that are not UTF-8 arrive as surrogates.
        authorization = authorization.encode("utf-8", "surrogateescape")
    return hashlib.sha256(authorization).digest()
