"""Every body the engine can send is admitted by SGLang's own schema, and says what it means.

A key that the schema drops silently would be a setting that silently does nothing, so top-level
keys are checked against the schema's fields, not only for admission.
"""

from __future__ import annotations

from typing import Any

import pytest

from bench.scripted import SchemaError
from bench.scripted.body import SAMPLING_FIELDS, check_schema
from engine.core.sampler.wire.request import generate_request
from engine.types import Images
from tests.contract import schema
from tests.contract.sampler.refusals import SCHEMA_REFUSALS, VALUE_REFUSALS
from toolwright.types import SamplingParams

pytestmark = pytest.mark.quick

FULL: dict[str, Any] = {
    "rid": "t7.3.0", "input_ids": [1, 2, 3], "stream": True, "return_logprob": True,
    "logprob_start_len": -1, "top_logprobs_num": 0, "return_text_in_logprobs": False,
    "return_prompt_token_ids": False, "return_hidden_states": False,
    "return_sampling_mask": False, "routed_experts_start_len": 0, "routing_key": "t7",
    "session_id": "t7", "session_params": None, "priority": 0, "extra_key": None,
    "cache_salt": None, "lora_path": None, "routed_dp_rank": None,
    "sampling_params": {
        "max_new_tokens": 256, "min_new_tokens": 0, "temperature": 1.0, "top_p": 1.0,
        "top_k": -1, "min_p": 0.0, "frequency_penalty": 0.0, "presence_penalty": 0.0,
        "repetition_penalty": 1.0, "stop": None, "stop_token_ids": [260], "stop_regex": None,
        "ignore_eos": False, "skip_special_tokens": False,
        "spaces_between_special_tokens": False, "no_stop_trim": True, "sampling_seed": 1,
        "stream_interval": 1, "n": 1, "logit_bias": None, "json_schema": None, "regex": None,
        "ebnf": None, "structural_tag": None, "custom_params": None,
    },
}  # fmt: skip


def body(sampling: SamplingParams | None = None, **fields: Any) -> dict[str, Any]:
    given = {"max_new_tokens": 8, "stop_token_ids": [], **fields}
    return generate_request(
        rid="r", input_ids=[1, 2, 3], sampling=sampling or SamplingParams(), **given
    )


PLAIN = body()
RICH = body(
    SamplingParams(
        temperature=0.7, top_p=0.9, top_k=20, min_p=0.05, repetition_penalty=1.1, seed=7,
        adapter="adapter", max_new_tokens=8,
    ),
    stop_token_ids=[260, 261],
    stop=["</search>"],
    stream_interval=2,
    routing_key="t7",
)  # fmt: skip
SEEING = body(images=Images(data=("data:image/png;base64,AA==",) * 2, return_prompt_ids=True))
LOOKING = body(top_logprobs=10)
LIMITED = [
    body(grammar=(kind, "{}")) for kind in ("json_schema", "structural_tag", "regex", "ebnf")
]


@pytest.mark.parametrize("sent", [FULL, PLAIN, RICH, SEEING, LOOKING, *LIMITED])
def test_admitted_by_the_schema(sent: dict[str, Any]) -> None:
    assert schema.refusal(sent) is None
    assert sent.keys() <= set(schema.load().GenerateRequest.__struct_fields__)
    decoded = schema.load().GenerateRequest.from_json_value(sent)
    for key, value in sent["sampling_params"].items():
        if value is not None:
            assert getattr(decoded.sampling_params, key) == value


def test_engine_asks_for_what_it_reads() -> None:
    assert PLAIN["stream"] is True
    assert PLAIN["return_logprob"] is True
    assert "top_logprobs_num" not in PLAIN, "they cost the server time and every event bytes"
    assert LOOKING["top_logprobs_num"] == 10
    assert "ignore_eos" not in RICH["sampling_params"], "it would switch the stop ids off"


def test_scripted_sampler_knows_the_same_sampling_fields() -> None:
    assert tuple(SAMPLING_FIELDS) == schema.load().SamplingParams.__struct_fields__


@pytest.mark.parametrize("change", SCHEMA_REFUSALS, ids=str)
def test_scripted_sampler_refuses_in_the_same_words(change: dict[str, Any]) -> None:
    changed = {**FULL, **change}
    with pytest.raises(SchemaError) as caught:
        check_schema(changed)
    assert str(caught.value) == schema.refusal(changed)


@pytest.mark.parametrize("sent", [FULL, PLAIN, SEEING, *({**FULL, **c} for c, _ in VALUE_REFUSALS)])
def test_scripted_sampler_admits_the_same(sent: dict[str, Any]) -> None:
    assert schema.refusal(sent) is None
    assert check_schema(sent) is sent


def test_abort_body() -> None:
    decoded = schema.load().AbortRequest.from_json_value({"rid": "t7", "abort_all": False})
    assert decoded.rid == "t7"
