"""The bodies of SGLang 0.5.23's native /generate wire, read strictly.

Owns what is admitted, and the words of a refusal. Pure. Invariants: an unknown key inside
sampling_params is refused, an unknown top-level key passes; ids and flags are never coerced.

Sampling parameters that shape a distribution are checked and otherwise ignored: a script has none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import cast

from bench.scripted.images import expanded, read_images
from bench.scripted.types import GenerateRequest, RequestError, SchemaError

DEFAULT_MAX_NEW_TOKENS = 128

Check = Callable[[object], None]


def _shown(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return f"boolean `{str(value).lower()}`"
        case int():
            return f"integer `{value}`"
        case float():
            return f"floating point `{value}`"
        case str():
            return f'string "{value}"'
        case list():
            return "sequence"
        case _:
            return "map"


def _refuse(value: object, expected: str) -> SchemaError:
    return SchemaError(f"invalid type: {_shown(value)}, expected {expected}")


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_string(value: object) -> bool:
    return isinstance(value, str)


def _is_map(value: object) -> bool:
    return isinstance(value, dict)


def _is_list(value: object) -> bool:
    return isinstance(value, list)


def _one(test: Callable[[object], bool], expected: str) -> Check:
    def check(value: object) -> None:
        if not test(value):
            raise _refuse(value, expected)

    return check


def _list_of(check_item: Check) -> Check:
    def check(value: object) -> None:
        _sequence(value)
        for item in cast("list[object]", value):
            check_item(item)

    return check


def _either(test: Callable[[object], bool], name: str, check_item: Check) -> Check:
    check_one = _one(test, f"a value or an array of values for {name}")
    check_items = _list_of(check_item)

    def check(value: object) -> None:
        if isinstance(value, list):
            check_items(value)
        else:
            check_one(value)
            check_item(value)

    return check


_flag = _one(_is_flag, "a boolean")
_integer = _one(_is_integer, "i64")
_number = _one(_is_number, "f64")
_string = _one(_is_string, "a string")
_map = _one(_is_map, "a map")
_sequence = _one(_is_list, "a sequence")
_strings = _either(_is_string, "StringOrList", _string)
_flags = _either(_is_flag, "BoolOrList", _flag)
_integers = _either(_is_integer, "Int64OrList", _integer)


def _anything(_value: object) -> None:
    return


def _ids(value: object) -> None:
    if not isinstance(value, list):
        raise _refuse(value, "a value or an array of values for TokenIdsOrList")
    if not value or _is_number(value[0]):
        _flat_ids(value)
        return
    for row in value:
        _flat_ids(row)


def _flat_ids(value: object) -> None:
    _sequence(value)
    ids = cast("list[object]", value)
    # The set of types sees every element in one pass of C code; prompts are long.
    if not set(map(type, ids)) <= {int}:
        for item in ids:
            _integer(item)


SAMPLING_FIELDS: Mapping[str, Check] = {
    "max_new_tokens": _integer,
    "stop": _strings,
    "stop_token_ids": _list_of(_integer),
    "stop_regex": _strings,
    "temperature": _number,
    "top_p": _number,
    "top_k": _integer,
    "min_p": _number,
    "frequency_penalty": _number,
    "presence_penalty": _number,
    "repetition_penalty": _number,
    "min_new_tokens": _integer,
    "n": _integer,
    "json_schema": _string,
    "regex": _string,
    "ebnf": _string,
    "structural_tag": _string,
    "ignore_eos": _flag,
    "skip_special_tokens": _flag,
    "spaces_between_special_tokens": _flag,
    "no_stop_trim": _flag,
    "stream_interval": _integer,
    "logit_bias": _map,
    "sampling_seed": _integer,
    "custom_params": _anything,
    "beam_width": _integer,
    "watermark": _map,
    "choice": _list_of(_string),
}


def _sampling(value: object) -> None:
    if not isinstance(value, dict):
        raise _refuse(value, "struct SamplingParams")
    for key, item in value.items():
        check = SAMPLING_FIELDS.get(key)
        if check is None:
            listed = ", ".join(f"`{name}`" for name in SAMPLING_FIELDS)
            raise SchemaError(f"unknown field `{key}`, expected one of {listed}")
        if item is not None:
            check(item)


REQUEST_FIELDS: Mapping[str, Check] = {
    "rid": _strings,
    "text": _strings,
    "input_ids": _ids,
    "stream": _flag,
    "sampling_params": _either(_is_map, "SamplingParamsOrList", _sampling),
    "return_logprob": _flags,
    "logprob_start_len": _integers,
    "top_logprobs_num": _integers,
    "token_ids_logprob": _ids,
    "return_hidden_states": _flags,
    "return_text_in_logprobs": _flag,
    "return_prompt_token_ids": _flag,
    "return_sampling_mask": _flags,
    "return_routed_experts": _flags,
    "routed_experts_start_len": _integer,
    "routed_dp_rank": _integer,
    "session_id": _string,
    "session_params": _anything,
    "routing_key": _string,
    "extra_key": _strings,
    "cache_salt": _strings,
    "lora_path": _strings,
    "priority": _integer,
}
NEVER_NULL = frozenset({"return_prompt_token_ids", "routed_experts_start_len"})


def check_schema(body: object) -> dict[str, object]:
    """The body, if the wire's schema admits it.

    Raises:
        SchemaError: it does not.
    """
    if not isinstance(body, dict):
        raise _refuse(body, "struct GenerateRequest")
    for key, value in body.items():
        check = REQUEST_FIELDS.get(key)
        if check is not None and (value is not None or key in NEVER_NULL):
            check(value)
    return body


def read_request(
    body: Mapping[str, object],
    *,
    new_rid: str,
    context_length: int,
    vocab_size: int | None,
    image_token: int | None = None,
    media_words: Sequence[Sequence[int]] = (),
) -> GenerateRequest:
    """The request in a body that `check_schema` admitted; `new_rid` names one without a rid.

    Without an `image_token` images are passed over, as by the real server with a text model.

    Raises:
        RequestError: the values are out of range, or ask for what no script can give.
    """
    ids = body.get("input_ids")
    if ids is None:
        raise RequestError(
            "input_ids are missing; text, image and embedding inputs need a tokenizer, "
            "which a scripted sampler does not have"
        )
    ids = cast("list[int]", ids)
    if not ids:
        raise RequestError("input_ids cannot be empty.")
    rid = body.get("rid")
    params = body.get("sampling_params") or {}
    if isinstance(ids[0], list) or isinstance(rid, list) or isinstance(params, list):
        raise RequestError("a scripted sampler takes one sequence a request, not a batch")
    params = cast("dict[str, object]", params)
    _check_supported(body, params)
    _check_ranges(params)
    if vocab_size is not None and (max(ids) >= vocab_size or min(ids) < 0):
        worst = min(ids) if min(ids) < 0 else max(ids)
        raise RequestError(f"input id {worst} is outside the vocabulary of {vocab_size} ids")
    images = () if image_token is None else read_images(body.get("image_data"))
    prompt = ids if image_token is None else expanded(ids, images, image_token, media_words)
    room = context_length - len(prompt)
    if room <= 0:
        raise RequestError(
            f"The input ({len(prompt)} tokens) is longer than the model's context length "
            f"({context_length} tokens)."
        )
    asked = params.get("max_new_tokens", DEFAULT_MAX_NEW_TOKENS)
    max_new_tokens = room if asked is None else cast(int, asked)
    if max_new_tokens > room:
        raise RequestError(
            f"Requested token count exceeds the model's maximum context length of "
            f"{context_length} tokens: {len(prompt)} in the input and {max_new_tokens} to generate."
        )
    name = cast("str | None", rid) or new_rid
    conversation = body.get("session_id") or body.get("routing_key") or name.partition(".")[0]
    return GenerateRequest(
        rid=name,
        input_ids=tuple(ids),
        stream=bool(body.get("stream")),
        return_logprob=bool(body.get("return_logprob")),
        return_prompt_token_ids=bool(body.get("return_prompt_token_ids")),
        max_new_tokens=max_new_tokens,
        stop_token_ids=frozenset(cast("list[int]", params.get("stop_token_ids") or ())),
        ignore_eos=bool(params.get("ignore_eos")),
        stream_interval=cast("int | None", params.get("stream_interval")) or 1,
        conversation=cast(str, conversation),
        params=params,
        images=images,
        prompt_ids=tuple(prompt) if images else (),
        top_logprobs=cast("int | None", body.get("top_logprobs_num")) or 0,
    )


def _check_supported(body: Mapping[str, object], params: Mapping[str, object]) -> None:
    for key in ("stop", "stop_regex", "min_new_tokens"):
        if params.get(key):
            raise RequestError(
                f"{key}={params[key]!r} needs a tokenizer, which a scripted sampler does not have"
            )
    if params.get("n") not in (None, 1):
        raise RequestError("a scripted sampler gives one reply a request: n must be 1")
    if body.get("logprob_start_len") not in (None, -1):
        raise RequestError("a scripted sampler scores no prompts: logprob_start_len must be -1")
    for key in ("token_ids_logprob", "return_hidden_states", "session_params"):
        if body.get(key):
            raise RequestError(f"a scripted sampler does not serve {key}")


def _check_ranges(params: Mapping[str, object]) -> None:
    def value(key: str, default: float) -> float:
        given = params.get(key)
        return default if given is None else cast(float, given)

    temperature = value("temperature", 1.0)
    if not math.isfinite(temperature) or temperature < 0:
        raise RequestError(f"temperature must be a non-negative finite number, got {temperature}.")
    if not 0 < (top_p := value("top_p", 1.0)) <= 1:
        raise RequestError(f"top_p must be in (0, 1], got {top_p}.")
    if not 0 <= (min_p := value("min_p", 0.0)) <= 1:
        raise RequestError(f"min_p must be in [0, 1], got {min_p}.")
    if (top_k := value("top_k", -1)) < 1 and top_k != -1:
        raise RequestError(f"top_k must be -1 (disable) or at least 1, got {top_k}.")
    for key in ("frequency_penalty", "presence_penalty"):
        if not -2 <= (penalty := value(key, 0.0)) <= 2:
            raise RequestError(f"{key} must be in [-2, 2], got {penalty}.")
    if not 0 < (repetition := value("repetition_penalty", 1.0)) <= 2:
        raise RequestError(f"repetition_penalty must be in (0, 2], got {repetition}.")
    if (limit := value("max_new_tokens", 0)) < 0:
        raise RequestError(f"max_new_tokens must be at least 0, got {limit}.")
