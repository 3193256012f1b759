"""Tokens and their owners, apart from any door."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from toolwright.rpc.auth import (
    TokenOnBehalf,
    Tokens,
    caller,
    on_behalf,
    readable_by_others,
    service_tokens,
    tokens_here,
)
from toolwright.rpc.errors import ListenError
from toolwright.rpc.options import TOKEN_VARIABLE, TOKENS_VARIABLE


async def test_who_asks_is_known_in_what_the_request_causes_and_nowhere_else() -> None:
    tokens = Tokens("free", {"a": "alice", "b": "bob"})

    async def request(token: str) -> list[str]:
        assert tokens.let_in(f"Bearer {token}")
        later = asyncio.create_task(asyncio.sleep(0, caller))
        return [caller(), (await later)()]

    requests = [asyncio.create_task(request(token)) for token in ("a", "b", "free")]
    assert await asyncio.gather(*requests) == [["alice"] * 2, ["bob"] * 2, [""] * 2]
    assert caller() == ""


@pytest.mark.parametrize(
    "authorization",
    ["", "Bearer", "Bearer ", "Bearer x", "bearer secret", "secret", "Bearer secret ", b"\xff\xfe",
     "Bearer \udcff", "Bearer \N{SNOWMAN}", "Bearer secret\0"],
)  # fmt: skip
def test_nobody_else_is_let_in(authorization: str | bytes) -> None:
    assert not Tokens("secret", {"other": "o"}).let_in(authorization)
    assert Tokens().let_in(authorization)


@pytest.mark.parametrize("owner", ["", "alice", "a.b", "ärger\N{SNOWMAN}"])
async def test_a_process_of_the_same_service_asks_on_its_callers_behalf(owner: str) -> None:
    door, clients = TokenOnBehalf("private"), Tokens("free", {"token": owner or "nobody"})

    async def asked_by_client(token: str) -> str:
        assert clients.let_in(f"Bearer {token}")
        return on_behalf("private")

    header = await asyncio.create_task(asked_by_client("token" if owner else "free"))
    assert header.isascii()
    assert door.let_in(header.encode())
    assert door.let_in(header)
    assert caller() == owner
    for wrong in ("", "Bearer private", "Bearer free", header.replace("private", "free")):
        assert not door.let_in(wrong)


def test_tokens_come_from_the_environment_and_from_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    monkeypatch.delenv(TOKENS_VARIABLE, raising=False)
    assert not service_tokens()
    file = tmp_path / "tokens"
    file.write_text("# who   what\n\nalice  one\nalice two\r\nbob three\n", encoding="utf-8")
    monkeypatch.setenv(TOKENS_VARIABLE, str(file))
    assert not service_tokens().let_in("")
    monkeypatch.setenv(TOKEN_VARIABLE, "four")
    tokens = service_tokens()
    for token, owner in (("one", "alice"), ("two", "alice"), ("three", "bob"), ("four", "")):
        assert tokens.let_in(f"Bearer {token}")
        assert caller() == owner
    assert Tokens().let_in("")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "No such file"),
        ("", "holds no token"),
        ("# alice one\n", "holds no token"),
        ("alice\n", "line 1: write an owner"),
        ("alice one\nalice one two\n", "line 2: write an owner"),
        ("alice one\nbob one\n", "line 2: the token stands there twice"),
        ("alice free\n", "is that of TOOLWRIGHT_TOKEN"),
        (b"alice \xff\n", "can be read"),
    ],
)
def test_a_file_that_will_not_do_is_said_to(
    text: str | bytes | None, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "tokens"
    if text is not None:
        file.write_bytes(text.encode() if isinstance(text, str) else text)
    monkeypatch.setenv(TOKENS_VARIABLE, str(file))
    monkeypatch.setenv(TOKEN_VARIABLE, "free")
    with pytest.raises(ListenError, match=said) as failure:
        service_tokens()
    assert str(file) in str(failure.value)
    assert "one" not in str(failure.value).split()


@pytest.mark.parametrize("free", ["", "free"])
def test_an_owners_token_opens_the_tool_service_alone(
    free: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "tokens"
    file.write_text("alice one\n", encoding="utf-8")
    monkeypatch.setenv(TOKENS_VARIABLE, str(file))
    monkeypatch.setenv(TOKEN_VARIABLE, free)
    assert service_tokens().let_in("Bearer one")
    assert bool(tokens_here()) == bool(free), "an address of other machines is refused then"
    assert tokens_here().let_in("Bearer one") == (not free)


@pytest.mark.parametrize(("mode", "warned"), [(0o600, False), (0o640, False), (0o644, True)])
def test_a_file_of_tokens_that_everybody_can_read_is_warned_of(
    mode: int, warned: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "tokens"
    monkeypatch.setenv(TOKENS_VARIABLE, str(file))
    assert readable_by_others() == "", "the server says that it is missing"
    file.write_text("alice one\n", encoding="utf-8")
    file.chmod(mode)
    assert bool(readable_by_others()) == warned
    if warned:
        assert str(file) in readable_by_others() and "chmod 600" in readable_by_others()
    monkeypatch.delenv(TOKENS_VARIABLE)
    assert readable_by_others() == ""
