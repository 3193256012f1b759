"""What a paid endpoint may be asked, in requests and in tokens; pure.

Tokens of an answer are reserved before the request goes out, so that requests in flight together
stay within the budget. What a prompt costs is known afterwards: the prompts in flight are all by
which a token budget can be passed.
"""

from __future__ import annotations

from toolsvc.errors import BackendRefuses


class BudgetSpent(BackendRefuses):
    """The request was not sent."""


class Budget:
    """Budget of one process's life. None = no bound."""

    def __init__(self, *, requests: int | None, tokens: int | None) -> None:
        self._most_requests = requests
        self._most_tokens = tokens
        self.requests = 0
        """Sent so far, whatever came of them."""
        self.tokens = 0
        """Used by the requests that were answered."""
        self._reserved = 0

    def reserve(self, tokens: int) -> None:
        """One request that answers with `tokens` at most; to be followed by `settle`. Raises
        BudgetSpent if that is more than what is left."""
        if self._most_requests is not None and self.requests >= self._most_requests:
            raise BudgetSpent(
                f"the budget of {self._most_requests} requests is spent: raise budget_requests"
            )
        wanted = self.tokens + self._reserved + tokens
        if self._most_tokens is not None and wanted > self._most_tokens:
            raise BudgetSpent(
                f"the budget of {self._most_tokens} tokens is spent ({self.tokens} used, "
                f"{self._reserved} reserved, {tokens} wanted): raise budget_tokens"
            )
        self.requests += 1
        self._reserved += tokens

    def settle(self, reserved: int, used: int) -> None:
        """What was reserved is free again, less what the request used."""
        self._reserved -= reserved
        self.tokens += used
