"""Addresses as people write them: what is none is refused with what to write instead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.recipes import merged, recipe_tables, write_recipe
from toolwright.recipe import Recipe, RecipeError, Sampler, load_recipe, refuse_open_ports
from toolwright.recipe.models.spelling import url_fault
from toolwright.recipe.open_ports import open_ports


def read(folder: Path, **changes: Any) -> Recipe:
    tables = recipe_tables(
        policy=Path("policy"),
        sampler="http://127.0.0.1:30000",
        tools={"calculator": "127.0.0.1:50061"},
        engine="127.0.0.1:50051",
    )
    return load_recipe(write_recipe(folder, merged(tables, changes)))


@pytest.mark.parametrize(
    ("url", "mend"),
    [
        ("127.0.0.1:30000", 'write "http://127.0.0.1:30000"'),
        ("localhost:30000/", 'write "http://localhost:30000"'),
        ("ws://sampler:1", 'write "http://HOST:PORT"'),
        ("http://[::1", 'write "http://HOST:PORT"'),
        ("http://one:99999", 'write "http://HOST:PORT"'),
        ("http://one two:1", 'write "http://HOST:PORT"'),
        ("http://one:1?key=2", 'write "http://one:1"'),
        ("http://one:1/prefix/generate/", 'write "http://one:1/prefix"'),
    ],
)
def test_no_url_of_a_sampler(tmp_path: Path, url: str, mend: str) -> None:
    with pytest.raises(RecipeError, match=r"sampler\.endpoints: ") as error:
        read(tmp_path, sampler={"endpoints": [url]})
    assert mend in str(error.value)


@pytest.mark.parametrize(
    ("address", "mend"),
    [
        ("http://127.0.0.1:50051", 'write "127.0.0.1:50051"'),
        ("https://engine.example:443/", 'write "engine.example:443"'),
        ("50051", 'write "HOST:PORT"'),
        ("127.0.0.1:70000", 'write "HOST:PORT"'),
    ],
)
def test_no_address_of_grpc(tmp_path: Path, address: str, mend: str) -> None:
    for key, change in (
        ("run.engine", {"run": {"engine": address}}),
        ("tools.calculator.service", {"tools": {"calculator": {"service": address}}}),
    ):
        with pytest.raises(RecipeError, match=key) as error:
            read(tmp_path, **change)
        assert mend in str(error.value)


@pytest.mark.parametrize(
    "address", ["unix:/tmp/engine.sock", "[::1]:50051", "engine.example:50051", "dns:///engine:1"]
)
def test_addresses_that_are(tmp_path: Path, address: str) -> None:
    assert read(tmp_path, run={"engine": address}).shared.run.engine == address


def test_any_free_port_is_for_toolwright_run_alone(tmp_path: Path) -> None:
    recipe = read(
        tmp_path,
        run={"engine": "127.0.0.1:0"},
        sampler={"endpoints": ["http://127.0.0.1:30000", "http://127.0.0.1:0"]},
    )
    assert [key for key, _ in open_ports(recipe.shared)] == ["run.engine", "sampler.endpoints"]
    refuse_open_ports(recipe, "tools")
    with pytest.raises(RecipeError, match=r"sampler.endpoints = 'http://127.0.0.1:0' .*toolwright"):
        refuse_open_ports(recipe, "sampler")
    with pytest.raises(RecipeError, match=r"run.engine = '127.0.0.1:0' .*or name a port"):
        refuse_open_ports(recipe)


@pytest.mark.parametrize(
    ("word", "open_"),
    [
        ("simulated.endpoint=http://127.0.0.1:0/v1", True),
        ("simulated.endpoint=http://localhost:0", True),
        ("simulated.endpoint=http://127.0.0.1:05/v1", False),
        ("simulated.endpoint=http://127.0.0.1:30001/v1", False),
        ("simulated.endpoint=http://far.example:0/v1", False),
        ("memory:127.0.0.1:1", False),
    ],
)
def test_a_url_of_what_plays_a_tool_needs_a_port_too(
    tmp_path: Path, word: str, open_: bool
) -> None:
    tools = {"calculator": {"serve": ["simulated:", "--set", word], "service": ""}}
    keys = [key for key, _ in open_ports(read(tmp_path, tools=tools).shared)]
    assert ("tools.calculator.serve" in keys) is open_


def test_a_url_in_a_tools_options_needs_a_port_too(tmp_path: Path) -> None:
    options = {"simulated": {"endpoint": "http://127.0.0.1:0/v1"}}
    tools = {"calculator": {"serve": ["simulated:"], "options": options, "service": ""}}
    keys = [key for key, _ in open_ports(read(tmp_path, tools=tools).shared)]
    assert "tools.calculator.options.simulated.endpoint" in keys


def test_only_a_known_kind_of_api_and_only_its_keys() -> None:
    assert Sampler(api="openai-chat", endpoints=("http://x/v1",)).endpoints == ("http://x/v1",)
    with pytest.raises(ValueError, match="ends in /v1"):
        Sampler(endpoints=("http://x/v1",))
    with pytest.raises(ValueError, match="model belongs to an API"):
        Sampler(endpoints=("http://x",), model="m")
    with pytest.raises(ValueError, match="not a URL"):
        Sampler(api="openai-chat", endpoints=("x/v1",))


@pytest.mark.parametrize(
    "url",
    [
        "https://user:hunter2@host/v1",
        "https://hunter2@host",
        "user:hunter2@host:80",
        "http://user:hunter2/x@host:80",
        "ftp://user:hunter2@host",
        "https://user:hunter2@host?x=1",
    ],
)
def test_an_address_holds_no_password(url: str) -> None:
    assert "hunter2" not in url_fault(url)
    assert "sampler.key_env" in url_fault(url)


def test_an_at_sign_in_a_path_is_no_password() -> None:
    assert url_fault("https://host/@cf/ai") == ""
