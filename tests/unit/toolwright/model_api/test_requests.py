"""Where an API is, and which keys it takes."""

from __future__ import annotations

from typing import Any

import pytest

from toolwright.model_api.address import ApiAddress
from toolwright.model_api.refused_keys import RefusedKeys, refused_key

pytestmark = pytest.mark.quick
CHAT = "/chat/completions"


@pytest.mark.parametrize(
    ("given", "urls"),
    [
        ("http://h:1", ["http://h:1/v1", "http://h:1"]),
        ("http://h/v1/", ["http://h/v1"]),
        ("https://h/api", ["https://h/api/v1", "https://h/api"]),
        ("https://h/v1beta/openai/", ["https://h/v1beta/openai"]),
        ("https://vllm.h/vault", ["https://vllm.h/vault/v1", "https://vllm.h/vault"]),
        ("https://h/inference/chat/completions", ["https://h/inference"]),
        ("https://h/inference/completions/", ["https://h/inference"]),
        ("https://h/chat/completions", ["https://h"]),
    ],
)
def test_where_an_address_leads(given: str, urls: list[str]) -> None:
    address = ApiAddress(given)
    assert address.urls(CHAT) == [url + CHAT for url in urls]
    assert address.base == urls[0]
    address.found(urls[-1] + CHAT, CHAT)
    assert address.urls("/models") == [urls[-1] + "/models"]


def test_a_query_goes_with_every_method() -> None:
    address = ApiAddress("https://h/openai/deployments/d/chat/completions?api-version=2024-10-21")
    assert address.urls("/models") == [
        "https://h/openai/deployments/d/models?api-version=2024-10-21"
    ]
    assert address.base == "https://h/openai/deployments/d"


TOO_LONG = (
    "'max_tokens' or 'max_completion_tokens' is too large: 512. This model's maximum context "
    "length is 8192 tokens and your request has 7900 input tokens (512 > 8192 - 7900)."
)


@pytest.mark.parametrize(
    ("said", "key"),
    [
        (TOO_LONG, None),
        ("the model bytedance/seed-oss takes no images", None),
        ("temperature must be between 0 and 2", None),
        ("the model low-temperature-7b does not support images", None),
        ("Unknown parameter: 'seed'.", "seed"),
        ('json: unknown field "seed"', "seed"),
        ("'max_tokens' is not supported; use 'max_completion_tokens'", "max_tokens"),
        ("Unsupported parameter: 'max_tokens' is not supported with this model.", "max_tokens"),
        ("`temperature` and `top_p` cannot both be specified for this model.", "top_p"),
        ("Unsupported parameter: 'top_p' is not supported with this model.", "top_p"),
        ("Unsupported value: 'temperature' does not support 0 with this model.", "temperature"),
        ("openai does not support parameters: ['temperature'], for model=o1.", "temperature"),
        ("temperature is deprecated for this model", "temperature"),
    ],
)
def test_only_a_key_that_is_not_taken_is_given_up(said: str, key: str | None) -> None:
    sent = {
        "messages": [], "max_tokens": 512, "seed": 1, "stream_options": {}, "temperature": 0,
        "top_p": 0.9,
    }  # fmt: skip
    assert refused_key(said, sent) == key


def test_a_key_is_given_up_once() -> None:
    body: dict[str, Any] = {"messages": [], "max_tokens": 7, "temperature": 0, "top_p": 0.5}
    keys = RefusedKeys()
    assert keys.learn("`temperature` and `top_p` cannot both be specified", body) == "top_p"
    assert keys.adapted(body) == {"messages": [], "max_tokens": 7, "temperature": 0}
    assert keys.learn("'max_tokens' is unsupported", keys.adapted(body)) == "max_tokens"
    assert keys.adapted(body) == {"messages": [], "max_completion_tokens": 7, "temperature": 0}
    assert keys.learn("'max_tokens' is unsupported", keys.adapted(body)) is None
    # A second request was under way when the first was refused.
    assert keys.learn("'top_p' is unsupported", body) == "top_p"


def test_completions_have_one_name_for_the_length() -> None:
    said = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
    assert refused_key(said, {"prompt": "x", "max_tokens": 7}) is None
