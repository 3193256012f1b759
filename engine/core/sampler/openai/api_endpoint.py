"""One endpoint as the pool sees it: who it is, how busy, when it may be asked again."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from engine.core.sampler.openai.body import Kind
from engine.core.sampler.openai.client import ApiClient, Model
from engine.core.sampler.retry import Fault
from engine.core.sampler.routing import FIRST_SUSPICION, LONGEST_SUSPICION
from engine.errors import StartupError
from toolwright.model_api.deltas import Usage
from toolwright.model_api.refused_keys import RefusedKeys

MOST_ALIKE = 8
"""Refusals in the same words before anything succeeded. So many rows are lost at most; fewer would
end an evaluation whose first rows happen to be at fault."""
_OF_LENGTH = ("context", "too long", "too large", "too many", "length", "exceed")
"""A refusal that says one of these is about one prompt, in words that many prompts may share."""
MOST_LISTED = 20
"""Models of a server of one's own. One that lists more is a hosted API, and those serve aliases
that they do not list."""


class Endpoint:
    """`model` is the one that is asked for; `why` says what is wrong before anybody was met."""

    def __init__(self, client: ApiClient, *, model: str) -> None:
        self.client = client
        self.name = client.url
        self.model = model
        self.kind = Kind.OTHER
        self.longest: int | None = None
        self.in_flight = 0
        self.served = False
        """A request succeeded: what it refuses later is no wrong address and no wrong key."""
        self.refused_keys = RefusedKeys()
        self.faults: Counter[Fault] = Counter()
        self.usage: Counter[str] = Counter()
        """Tokens as it told them, over requests whose usage came."""
        self.requests = 0
        self._refusal, self._alike = "", 0
        self._not_before = 0.0
        self._suspicion = 0.0
        self._suspect_until = 0.0

    def meet(self, models: list[Model] | None) -> None:
        """StartupError where what it lists is not what is asked for, or is several."""
        if not models:  # it does not list them: the first request will tell
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
        self.kind = Kind.of(known.owned_by)
        self.longest = found.longest if found else None

    def leave_alone(self, seconds: float) -> None:
        """It asked for that."""
        self._not_before = max(self._not_before, time.monotonic() + seconds)

    def refused(self, told: str) -> bool:
        """A request was refused in these words. Whether every request will be: it never served one
        and has said so `MOST_ALIKE` times in a row."""
        if self.served or any(word in told.lower() for word in _OF_LENGTH):
            return False
        self._alike = self._alike + 1 if told == self._refusal else 1
        self._refusal = told
        return self._alike >= MOST_ALIKE

    def failed(self) -> bool:
        """Others are asked first for a while, which every failure in a row doubles. Whether that is
        news: requests that fail together are one failure."""
        if not self.trusted:
            return False
        self._suspicion = min(max(FIRST_SUSPICION, 2 * self._suspicion), LONGEST_SUSPICION)
        self._suspect_until = time.monotonic() + self._suspicion
        return True

    def succeeded(self) -> None:
        self.served = True
        self._suspicion = self._suspect_until = 0.0

    @property
    def trusted(self) -> bool:
        return time.monotonic() >= self._suspect_until

    @property
    def wait(self) -> float:
        """Seconds until it may be asked again."""
        return max(0.0, self._not_before - time.monotonic())

    def count(self, usage: Usage | None) -> dict[str, int]:
        """Adds what a request took; the numbers that the server told, by name."""
        self.requests += 1
        told = {
            name: value
            for name in ("prompt_tokens", "completion_tokens", "cached_tokens")
            if usage is not None and (value := getattr(usage, name)) is not None
        }
        self.usage.update(told)
        self.usage["requests_told"] += bool(told)
        return told

    def statistics(self) -> Mapping[str, Any]:
        return {
            "model": self.model,
            "kind": str(self.kind),
            "in_flight": self.in_flight,
            "requests": self.requests,
            "usage": dict(self.usage),
            "failures": {str(fault): count for fault, count in self.faults.items()},
        }
