"""Failures of a call as a client sees them: status, code, and the API's own shape."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import orjson
import structlog
from aiohttp import web

from ingress.errors import ApiError
from ingress.link import BrokenOrder, CallLost
from toolwright.common.v1 import reasons_pb2 as reasons
from toolwright.rpc.errors import ServiceError, TransportError

log = structlog.get_logger("ingress")

FAILURES = (ApiError, ServiceError, TransportError, CallLost, BrokenOrder)


def api_error(error: Exception) -> ApiError:
    """A call's failure as the client sees it."""
    if isinstance(error, ApiError):
        return error
    if not isinstance(error, ServiceError):
        log.warning("call failed", error=str(error))
        return ApiError(str(error), status=500, kind="server_error")
    match error.reason:
        case reasons.ERROR_REASON_SESSION_NOT_FOUND:
            return ApiError(
                "no trajectory has this key",
                status=401,
                kind="authentication_error",
                code="invalid_api_key",
            )
        case reasons.ERROR_REASON_NOT_OWNER:
            return ApiError(error.message, status=403, kind="permission_error", code="wrong_key")
        case reasons.ERROR_REASON_SESSION_CLOSED:
            return ApiError(error.message, status=410, code="trajectory_ended")
        case reasons.ERROR_REASON_CONTEXT_FULL:
            # Agents look for the code, or for OpenAI's own words.
            return ApiError(
                f"This model's maximum context length is exceeded: {error.message}",
                code="context_length_exceeded",
                param="messages",
            )
        case reasons.ERROR_REASON_TOO_MANY_CALLS:
            return ApiError(
                error.message,
                status=429,
                kind="rate_limit_error",
                code="too_many_calls",
                retry_after=1.0,
            )
        case reasons.ERROR_REASON_TRAJECTORY_FULL:
            # Not 429: clients would retry for minutes what can never succeed.
            return ApiError(error.message, code="trajectory_full")
        case reasons.ERROR_REASON_INVALID_REQUEST:
            return ApiError(error.message)
        case reasons.ERROR_REASON_CALL_ID_REUSED:
            return ApiError(error.message, status=409, code="id_reused")
        case reasons.ERROR_REASON_QUEUE_LIMIT:
            return ApiError(
                error.message,
                status=429,
                kind="rate_limit_error",
                code="too_many_tasks",
                retry_after=1.0,
            )
        case reasons.ERROR_REASON_INTERNAL:
            log.warning("call failed", error=str(error))
            why = "the engine failed at this call, and its log says why"
            return ApiError(why, status=500, kind="server_error")
    log.warning("call failed", error=str(error))
    return ApiError(str(error), status=500, kind="server_error")


def unexpected(error: Exception) -> ApiError:
    """A fault of this process as the client sees it. Logged with its trace."""
    log.error("unexpected", exc_info=error)
    why = f"the ingress failed with {type(error).__name__}, and its log says why"
    return ApiError(why, status=500, kind="server_error")


Shape = Callable[[ApiError], dict[str, Any]]
"""Gives the body of a refusal."""


def refusal(error: ApiError, shape: Shape) -> web.Response:
    response = json_response(shape(error), error.status)
    if error.retry_after is not None:
        response.headers["Retry-After"] = f"{error.retry_after:.0f}"
    return response


def json_response(body: Any, status: int = 200) -> web.Response:
    headers = {"Content-Type": "application/json"}
    return web.Response(body=json_bytes(body), status=status, headers=headers)


def json_bytes(body: Any) -> bytes:
    """Data as JSON, also integers beyond 64 bits: tool calls may have them."""
    try:
        return orjson.dumps(body)
    except TypeError:
        return json.dumps(body, ensure_ascii=False).encode()
