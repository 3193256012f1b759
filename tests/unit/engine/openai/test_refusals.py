"""What a refusal means, and what it tells people to mend."""

from __future__ import annotations

import datetime
from email.utils import format_datetime

import pytest

from engine.core.sampler.openai.refusals import (
    FIRST_PAUSE_S,
    LONGEST_PAUSE_S,
    NoCredit,
    NotFound,
    RetryLater,
    WrongAddress,
    WrongKey,
    refusal,
)
from engine.core.sampler.wire.client import ServerRefused
from engine.core.sampler.wire.events import WireError


def refused(status: int, body: bytes = b"", **headers: str) -> Exception:
    return refusal(
        "http://x/v1/chat", status, {n.replace("_", "-"): v for n, v in headers.items()}, body,
        key_env="API_KEY", model="tiny",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("status", "body", "kind", "words"),
    [
        (401, b'{"error": {"message": "no key"}}', WrongKey, ["no key", "API_KEY"]),
        (403, b"", WrongKey, ["API_KEY", "sampler.key_env"]),
        (404, b'{"detail": "Not Found"}', NotFound, ["'tiny'", "sampler.model", "/v1"]),
        (405, b"", NotFound, ["sampler.endpoints"]),
        (200, b"", ServerRefused, []),
        (400, b'{"error": "bad"}', ServerRefused, ["bad"]),
        (422, b'[{"error": {"message": "worse"}}]', ServerRefused, ["worse"]),
        (404, b"<!DOCTYPE html><html>", WrongAddress, ["web page", "sampler.endpoints"]),
        (402, b"", NoCredit, ["top the account up"]),
        (429, b'{"error": {"code": "insufficient_quota"}}', NoCredit, []),
        (502, b"<html>bad gateway</html>", WireError, ["502"]),
        (408, b"\xff\xfe", WireError, ["408"]),
    ],
)
def test_the_kind_and_the_mend(
    status: int, body: bytes, kind: type[Exception], words: list[str]
) -> None:
    found = refused(status, body)
    assert type(found) is kind
    assert all(word in str(found) for word in words)


def test_a_redirect_is_not_followed_but_named() -> None:
    found = refused(301, b"", Location="https://other/v1")
    assert isinstance(found, WrongAddress)
    assert "https://other/v1" in str(found)


def test_what_a_server_says_is_cut_to_one_line() -> None:
    found = str(refused(400, b"a\nb\r\n" * 100_000))
    assert len(found) < 500
    assert "\n" not in found


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("3", 3.0), ("0.5", 0.5), ("0", 0.0), ("1e9", LONGEST_PAUSE_S), ("inf", LONGEST_PAUSE_S),
        ("nan", FIRST_PAUSE_S), ("-4", FIRST_PAUSE_S), ("soon", FIRST_PAUSE_S), ("", FIRST_PAUSE_S),
        ("99999999999999999999", LONGEST_PAUSE_S), ("Mon, 99 Nov", FIRST_PAUSE_S),
    ],
)  # fmt: skip
def test_retry_after_is_bounded(said: str, seconds: float) -> None:
    found = refused(429, Retry_After=said)
    assert isinstance(found, RetryLater)
    assert found.seconds == seconds


def test_retry_after_may_be_a_date() -> None:
    soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=30)
    found = refused(503, Retry_After=format_datetime(soon, usegmt=True))
    assert isinstance(found, RetryLater)
    assert 20 < found.seconds <= 30
    assert isinstance(refused(429), RetryLater)
    assert not isinstance(refused(503), RetryLater)
