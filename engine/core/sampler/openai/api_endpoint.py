"""One endpoint as the pool sees it: its identity, its load, and when the next request may go
there."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from engine.core.sampler.openai.body import ServerKind
from engine.core.sampler.openai.client import ApiClient, ListedModel
from engine.core.sampler.retry import Fault
from engine.errors import StartupError
from toolwright.model_api.deltas import Usage
from toolwright.model_api.refused_keys import RefusedKeys

MOST_ALIKE = 8
"""Refusals in the same words before the first success. So many rows are lost at most. A lower
number would end an evaluation whose first rows happen to be at fault."""
_OF_LENGTH = ("context", "too long", "too large", "too many", "length", "exceed")
"""A refusal with one of these words is about one prompt; many prompts may share the words."""
MOST_LISTED = 20
"""Most models of a self-hosted server. A server that lists more is a hosted API; those serve
aliases that they do not list."""


class ApiEndpoint:
    """One endpoint. `model` is the model of its requests; `why` says what is wrong before the first
    contact."""

    def __init__(self, client: ApiClient, *, model: str) -> None:
        self.client = client
        self.name = client.url
        self.model = model
        self.kind = ServerKind.OTHER
        self.longest: int | None = None
        self.served = False
        """A request succeeded, so later refusals mean neither a wrong address nor a wrong key."""
        self.refused_keys = RefusedKeys()
        self.faults: Counter[Fault] = Counter()
        self.usage: Counter[str] = Counter()
        """Tokens as the server counted them, over requests with a usage."""
        self.requests = 0
        self._refusal, self._alike = "", 0
        self._not_before = 0.0

    def check_models(self, models: list[ListedModel] | None) -> None:
        """Raises StartupError if the list lacks the model, or if several models leave the choice
        open."""
        if not models:  # it does not list them: the first request will show
            if not self.model:
                raise StartupError(
                    f"{self.name} does not list its models: name one in sampler.model"
                )
            return
        named = {one.name: one for one in models}
        shown = ", ".join(list(named)[:MOST_LISTED])
        if not self.model:
            if len(named) > 1:
                raise StartupError(
                    f"{self.name} serves {len(named)} models: name one in sampler.model, of {shown}"
                )
            self.model = next(iter(named))
        found = named.get(self.model)
        if found is None and len(named) <= MOST_LISTED:
            raise StartupError(
                f"{self.name} does not serve {self.model!r}, but {shown}: correct sampler.model"
            )
        known = found or models[0]
        self.kind = ServerKind.of(known.owned_by)
        self.longest = found.longest if found else None

    def pause_for(self, seconds: float) -> None:
        """Sends no request for `seconds`, as the server wants."""
        self._not_before = max(self._not_before, time.monotonic() + seconds)

    def refused(self, message: str) -> bool:
        """Counts a refusal in these words. Returns whether every request will be refused: the
        server never served one and has said so `MOST_ALIKE` times in a row."""
        if self.served or any(word in message.lower() for word in _OF_LENGTH):
            return False
        self._alike = self._alike + 1 if message == self._refusal else 1
        self._refusal = message
        return self._alike >= MOST_ALIKE

    @property
    def wait(self) -> float:
        """Seconds until the next request may go there."""
        return max(0.0, self._not_before - time.monotonic())

    def count(self, usage: Usage | None) -> dict[str, int]:
        """Adds a request's usage. Returns the server's numbers by name."""
        self.requests += 1
        counted = {
            name: value
            for name in ("prompt_tokens", "completion_tokens", "cached_tokens")
            if usage is not None and (value := getattr(usage, name)) is not None
        }
        self.usage.update(counted)
        self.usage["requests_told"] += bool(counted)
        return counted

    def statistics(self) -> Mapping[str, Any]:
        return {
            "model": self.model,
            "kind": str(self.kind),
            "requests": self.requests,
            "usage": dict(self.usage),
            "failures": {str(fault): count for fault, count in self.faults.items()},
        }
