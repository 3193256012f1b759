"""The one rule of HTTP servers: a page of another site gets nothing, whatever it can send."""

from __future__ import annotations

import socket

import pytest

from toolwright.rpc.auth import Tokens
from toolwright.rpc.http_rule import HttpRule, asgi_headers, names_of

pytestmark = pytest.mark.quick
HERE = {"host": "127.0.0.1:8000"}
JSON = {"content-length": "2", "content-type": "application/json"}


def status(headers: dict[str, str], *, token: str = "", data: bool = True) -> int:
    refusal = HttpRule(Tokens(token), ["mine"]).refusal(headers, data=data)
    return 200 if refusal is None else int(refusal.status)


@pytest.mark.parametrize(
    "headers",
    [
        HERE,
        HERE | JSON,
        HERE | JSON | {"content-type": "Application/JSON; charset=utf-8"},
        HERE | JSON | {"origin": "http://127.0.0.1:8000"},
        {"host": "localhost"} | JSON | {"origin": "http://localhost:80"},
        {"host": "mine:443"} | JSON | {"origin": "https://mine"},
        HERE | {"sec-fetch-site": "none"},
        HERE | {"sec-fetch-site": "same-origin", "origin": "https://in.front.of.it"},
        HERE | {"content-length": "0", "content-type": "text/plain"},
    ],
)
def test_programs_and_our_own_pages_are_answered(headers: dict[str, str]) -> None:
    assert status(headers) == 200


@pytest.mark.parametrize(
    ("headers", "wanted"),
    [
        (HERE | JSON | {"content-type": "text/plain"}, 415),
        (HERE | JSON | {"content-type": "text/plain; application/json"}, 415),
        (HERE | JSON | {"content-type": "application/x-www-form-urlencoded"}, 415),
        (HERE | JSON | {"content-type": "multipart/form-data; boundary=application/json"}, 415),
        (HERE | {"content-length": "2"}, 415),
        (HERE | {"transfer-encoding": "chunked"}, 415),
        (HERE | {"content-length": "00000002", "content-type": ""}, 415),
        (HERE | JSON | {"origin": "https://evil.example"}, 403),
        (HERE | JSON | {"origin": "null"}, 403),
        (HERE | JSON | {"origin": ""}, 403),
        (HERE | JSON | {"origin": "http://127.0.0.1:9000"}, 403),
        (HERE | JSON | {"origin": "http://127.0.0.1:8000.evil.example"}, 403),
        (HERE | JSON | {"origin": "ftp://127.0.0.1:8000"}, 403),
        (HERE | {"sec-fetch-site": "none", "origin": "https://evil.example"}, 403),
        (HERE | {"sec-fetch-site": "cross-site"}, 403),
        (HERE | {"sec-fetch-site": "same-site"}, 403),
        ({"host": "evil.example", "origin": "http://evil.example"} | JSON, 421),
        ({"host": "evil.example:8000", "sec-fetch-site": "same-origin"}, 421),
        ({"host": "127.0.0.1:80@evil.example"}, 421),
        ({}, 421),
    ],
)
def test_a_page_of_another_site_gets_nothing(headers: dict[str, str], wanted: int) -> None:
    assert status(headers) == wanted


def test_a_token_proves_more_than_a_name() -> None:
    named = {"host": "search.example:8000"} | JSON
    assert status(named, token="secret") == 401
    assert status(named | {"authorization": "Bearer wrong"}, token="secret") == 401
    right = named | {"authorization": "Bearer secret"}
    assert status(right, token="secret") == 200
    assert status(right | {"origin": "https://evil.example"}, token="secret") == 403
    assert status(right | {"content-type": "text/plain"}, token="secret") == 415


def test_the_programs_files_need_a_name_and_nothing_else() -> None:
    assert status(HERE | {"sec-fetch-site": "cross-site"}, token="secret", data=False) == 200
    assert status({"host": "evil.example"}, token="secret", data=False) == 421


def test_names_of_a_server() -> None:
    assert names_of("127.0.0.1:1") == {"127.0.0.1"}
    assert names_of("[::1]:1") == {"::1"}
    assert {"0.0.0.0", socket.gethostname()} <= names_of("0.0.0.0:1")


def test_bytes_of_any_kind_are_headers() -> None:
    given = {"headers": [(b"authorization", b"Bearer \xff"), (b"host", b"\xe9")]}
    assert status(asgi_headers(given), token="secret") == 401
