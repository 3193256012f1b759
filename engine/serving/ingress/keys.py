"""Keys of attempts. A key names its attempt and proves itself, so nothing stores it. Pure.

The secret is the journal's: a key stays valid in every life of the engine. The reward key is
another one, which the agent's environment never has.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from enum import StrEnum

PROOF_BYTES = 16


class KeyUse(StrEnum):
    """Uses of a key; each has its own prefix."""

    CALLS = "tw"
    REWARD = "twr"


class Keys:
    """Makes and reads the keys of one run."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def key(self, attempt: str, use: KeyUse = KeyUse.CALLS) -> str:
        """The key of an attempt, of letters, digits, "-", "_" and "."."""
        return f"{use}-{_text(attempt.encode())}.{_text(self._proof(attempt, use))}"

    def attempt(self, key: str, *uses: KeyUse) -> str | None:
        """The attempt of a key for one of `uses`; None for a key that this run did not make."""
        use, _, rest = key.partition("-")
        name, _, _proof = rest.rpartition(".")
        if use not in uses:
            return None
        try:
            attempt = urlsafe_b64decode(name + "=" * (-len(name) % 4)).decode()
        except ValueError:
            return None
        made = self.key(attempt, KeyUse(use))
        return attempt if hmac.compare_digest(made.encode(), key.encode()) else None

    def _proof(self, attempt: str, use: KeyUse) -> bytes:
        message = f"{use}\0{attempt}".encode()
        return hmac.digest(self._secret, message, "sha256")[:PROOF_BYTES]


def _text(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")
