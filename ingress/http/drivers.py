"""Routes for a user's own driver, which opens and takes trajectories and starts agents for them.

They need the bearer token of the process (`TOOLWRIGHT_TOKEN`), which no agent has. Without one the
routes refuse: a jailed agent reaches this server too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiohttp import hdrs, web

from ingress.dialects.reading import MOST_MESSAGES, number_at, objects, text_at, whole_at
from ingress.errors import ApiError, wrong
from ingress.http.reports import end_of
from ingress.link import EngineLink
from toolwright import wire
from toolwright.common.v1 import trajectory_pb2
from toolwright.ingress.v1 import ingress_pb2 as pb
from toolwright.rollout.v1 import rollout_pb2
from toolwright.rpc.auth import tokens_here
from toolwright.rpc.options import TOKEN_VARIABLE
from toolwright.types import Task

LONGEST_WAIT = 60.0
"""Longest wait for a trajectory, in seconds."""
_MOST_NUMBER = 2**63 - 1
MOST_TASKS = 1024
"""Tasks of one request."""
_TEXT_KEYS = ("id", "data_source", "prompt", "name")
_TASK_KEYS = (*_TEXT_KEYS, "messages", "answers", "metadata")


def _task(given: Mapping[str, Any], where: str) -> trajectory_pb2.Task:
    """A task of a body. Raises ApiError, which names the wrong key."""
    answers = given.get("answers") or []
    if not isinstance(answers, list) or not all(isinstance(one, str) for one in answers):
        raise wrong(f"{where}.answers", "it must be a list of texts")
    metadata = given.get("metadata") or {}
    if not isinstance(metadata, Mapping):
        raise wrong(f"{where}.metadata", "it must be an object")
    texts: dict[str, Any] = {key: text_at(given, key, f"{where}.") for key in _TEXT_KEYS}
    messages = tuple(objects(given, "messages", MOST_MESSAGES))
    task = Task(**texts, messages=messages, answers=tuple(answers), metadata=metadata)
    return wire.task_to_proto(task)


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

    async def open(self, body: Any) -> dict[str, Any]:
        """Submits {"tasks"} to a recipe with `task.source = "submitted"`. Each task has an "id",
        and "prompt" or "messages"; a known id is no new task. The numbers of both."""
        given = objects(body, "tasks", MOST_TASKS)
        if not given:
            raise wrong("tasks", "at least one task is needed")
        tasks = [_task(one, f"tasks[{at}]") for at, one in enumerate(given)]
        answer = await self._link.submit(rollout_pb2.SubmitTasksRequest(tasks=tasks))
        return {"accepted": answer.accepted, "known": answer.known}

    async def take(self, body: Any) -> dict[str, Any]:
        """A trajectory for {"worker", "number", "wait"}. A repeated number gets the same one.
        Raises ApiError with status 429 if no trajectory was admitted in time, and 410 if none will
        be."""
        worker, number = text_at(body, "worker"), whole_at(body, "number", 0, _MOST_NUMBER)
        if not worker or number is None:
            raise wrong("worker", 'a name is needed, and a "number" for each request')
        wait = number_at(body, "wait", 0, LONGEST_WAIT) or 0.0
        request = pb.TakeRequest(worker=worker, number=number, wait=wire.duration(wait))
        taken = await self._link.take(request, wait)
        if taken.over:
            raise ApiError("the run is over: no trajectory follows", status=410, code="run_over")
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
