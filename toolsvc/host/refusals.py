"""Refusals that a host and a front of several hosts give in the same words."""

from __future__ import annotations

from collections.abc import Iterable

from toolsvc.errors import RETRY_SECONDS, Reason, Refused


def draining() -> Refused:
    return Refused(
        Reason.DRAINING,
        "the service is shutting down",
        retry_after=RETRY_SECONDS,
        fix="send it to another service, or wait for the restart",
    )


def too_many_sessions(session_id: str, most: int) -> Refused:
    return Refused(
        Reason.TOO_MANY_SESSIONS,
        f"{most} sessions are open, the most that this service holds",
        subject=session_id,
        retry_after=RETRY_SECONDS,
        fix="close sessions, or raise --max-sessions",
    )


def opened_otherwise(session_id: str) -> Refused:
    return Refused(
        Reason.INVALID_REQUEST,
        f"session {session_id} is open already, by another request",
        subject=session_id,
        fix="give the same tools, metadata and media, or a session_id that was never used",
    )


def unknown_tool(tool: str, known: Iterable[str]) -> Refused:
    return Refused(
        Reason.UNKNOWN_TOOL,
        f"there is no tool {tool!r} here, only {', '.join(known)}",
        subject=tool,
    )


def session_not_found(session_id: str) -> Refused:
    return Refused(
        Reason.SESSION_NOT_FOUND,
        f"session {session_id} is not known here",
        subject=session_id,
        fix="open it first",
    )


def session_lost(session_id: str, why: str) -> Refused:
    return Refused(
        Reason.SESSION_LOST,
        f"session {session_id} was lost: {why}",
        subject=session_id,
        fix="open a new session",
    )


def fenced(session_id: str, fence: int, seen: int) -> Refused:
    return Refused(
        Reason.FENCED,
        f"session {session_id} has gone to another caller: this one has fence {fence}, and fence "
        f"{seen} has come",
        subject=session_id,
        fix="drop the session: its new caller goes on",
    )


def session_closed(session_id: str, why: str) -> Refused:
    return Refused(
        Reason.SESSION_CLOSED, f"session {session_id} has ended: {why}", subject=session_id
    )
