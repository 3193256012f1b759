"""Routes for a user's own driver, which takes trajectories and starts agents for them.

They need the bearer token of the process (`TOOLWRIGHT_TOKEN`), which no agent has. Without one the
routes refuse: a jailed agent reaches this server too.
"""

from __future__ import annotations

from typing import Any

from aiohttp import hdrs, web

from ingress.dialects.reading import number_at, text_at, whole_at
from ingress.errors import ApiError, wrong
from ingress.link import EngineLink
from ingress.reports import end_of
from toolwright import wire
from toolwright.ingress.v1 import ingress_pb2 as pb
from toolwright.rpc.auth import tokens_here
from toolwright.rpc.options import TOKEN_VARIABLE

LONGEST_WAIT = 60.0
"""Longest wait for a trajectory, in seconds."""
_MOST_NUMBER = 2**63 - 1
_TASK_KEYS = ("id", "data_source", "prompt", "messages", "answers", "metadata", "name")


class DriverRoutes:
    """Answers to drivers."""

    def __init__(self, link: EngineLink) -> None:
        self._link = link
        self._tokens = tokens_here()

    def check(self, request: web.Request) -> None:
        """Raises ApiError for a request that is no driver's."""
        if not self._tokens:
            raise ApiError(
                f"no driver is served: start the ingress with {TOKEN_VARIABLE}",
                status=403,
                kind="permission_error",
            )
        if not self._tokens.let_in(request.headers.get(hdrs.AUTHORIZATION, "")):
            raise ApiError(
                f"bearer token missing or wrong: send that of {TOKEN_VARIABLE}",
                status=401,
                kind="authentication_error",
            )

    async def take(self, body: Any) -> dict[str, Any]:
        """A trajectory for {"worker", "number", "wait"}. A repeated number gets the same one.
        Raises ApiError with status 429 if no trajectory was admitted in time."""
        worker, number = text_at(body, "worker"), whole_at(body, "number", 0, _MOST_NUMBER)
        if not worker or number is None:
            raise wrong("worker", 'a name is needed, and a "number" for each request')
        wait = number_at(body, "wait", 0, LONGEST_WAIT) or 0.0
        request = pb.TakeRequest(worker=worker, number=number, wait=wire.duration(wait))
        taken = await self._link.take(request, wait)
        if not taken.key:
            raise ApiError(
                "no trajectory was admitted in time: send the request again",
                status=429,
                kind="rate_limit_error",
                code="no_trajectory",
                retry_after=1.0,
            )
        task = wire.task_from_proto(taken.task)
        return {
            "key": taken.key,
            "reward_key": taken.reward_key or taken.callback_key,
            "base_path": f"/t/{taken.key}/v1",
            "trajectory_id": taken.trajectory_id,
            "attempt": taken.attempt,
            "context": taken.context,
            "task": {key: getattr(task, key) for key in _TASK_KEYS},
        }

    async def end(self, body: Any) -> dict[str, Any]:
        """Ends the trajectory of {"key", ...}, as `POST end` does."""
        key = text_at(body, "key")
        calls = await self._link.end(end_of(body, key, by_agent=False))
        return {"status": "ended", "calls": calls}
