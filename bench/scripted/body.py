"""The bodies of SGLang 0.5.23's native /generate wire, read strictly.

Owns the schema and the messages of refusals. Pure. Invariants: an unknown key inside
sampling_params is refused, an unknown top-level key passes; ids and flags are never coerced.

Sampling parameters that shape a distribution are checked and otherwise ignored: a script has none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

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


def _fits(value: object, *kinds: type) -> bool:
    """Whether the value has one of the types. A boolean is no number."""
    return isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))


def _one(expected: str, *kinds: type) -> Check:
    def check(value: object) -> None:
        if not _fits(value, *kinds):
            raise _refuse(value, expected)

    return check


def _list_of(check_item: Check) -> Check:
    def check(value: object) -> None:
        _sequence(value)
        for item in cast("list[object]", value):
            check_item(item)

    return check


def _either(name: str, check_item: Check, *kinds: type) -> Check:
    """A value of these types or a list of them."""
    check_one = _one(f"a value or an array of values for {name}", *kinds)
    check_items = _list_of(check_item)

    def check(value: object) -> None:
        if isinstance(value, list):
            check_items(value)
        else:
            check_one(value)
            check_item(value)

    return check


_flag, _integer, _number = _one("a boolean", bool), _one("i64", int), _one("f64", int, float)
_string, _map, _sequence = _one("a string", str), _one("a map", dict), _one("a sequence", list)
_strings = _either("StringOrList", _string, str)
_flags = _either("BoolOrList", _flag, bool)
_integers = _either("Int64OrList", _integer, int)


def _anything(_value: object) -> None:
    return


def _ids(value: object) -> None:
    if not isinstance(value, list):
        raise _refuse(value, "a value or an array of values for TokenIdsOrList")
    for row in [value] if not value or _fits(value[0], int, float) else value:
        _flat_ids(row)


def _flat_ids(value: object) -> None:
    _sequence(value)
    ids = cast("list[object]", value)
    # The set of types sees every element in one pass of C code; prompts are long.
    if not set(map(type, ids)) <= {int}:
        for item in ids:
            _integer(item)


def _table(*groups: tuple[Check, str]) -> Mapping[str, Check]:
    """The check of each name in the groups."""
    return {name: check for check, names in groups for name in names.split()}


SAMPLING_FIELDS = _table(
    (_integer, "max_new_tokens"), (_strings, "stop"), (_list_of(_integer), "stop_token_ids"),
    (_strings, "stop_regex"), (_number, "temperature top_p"), (_integer, "top_k"),
    (_number, "min_p frequency_penalty presence_penalty repetition_penalty"),
    (_integer, "min_new_tokens n"), (_string, "json_schema regex ebnf structural_tag"),
    (_flag, "ignore_eos skip_special_tokens spaces_between_special_tokens no_stop_trim"),
    (_integer, "stream_interval"), (_map, "logit_bias"), (_integer, "sampling_seed"),
    (_anything, "custom_params"), (_integer, "beam_width"), (_map, "watermark"),
    (_list_of(_string), "choice"),
)  # fmt: skip
"""Checks of sampling_params, in the order in which the real server lists its fields."""


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


REQUEST_FIELDS = _table(
    (_strings, "rid text extra_key cache_salt lora_path"),
    (_ids, "input_ids token_ids_logprob"),
    (_flag, "stream return_text_in_logprobs return_prompt_token_ids"),
    (_either("SamplingParamsOrList", _sampling, dict), "sampling_params"),
    (_flags, "return_logprob return_hidden_states return_sampling_mask return_routed_experts"),
    (_integers, "logprob_start_len top_logprobs_num"),
    (_integer, "routed_experts_start_len routed_dp_rank priority"),
    (_string, "session_id routing_key"),
    (_anything, "session_params"),
)
NEVER_NULL = frozenset({"return_prompt_token_ids", "routed_experts_start_len"})


def check_schema(body: object) -> dict[str, Any]:
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
    body: Mapping[str, Any],
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
    if not ids:
        raise RequestError("input_ids cannot be empty.")
    rid = body.get("rid")
    params = body.get("sampling_params") or {}
    if any(isinstance(one, list) for one in (ids[0], rid, params)):
        raise RequestError("a scripted sampler takes one sequence a request, not a batch")
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
    wanted = params.get("max_new_tokens", DEFAULT_MAX_NEW_TOKENS)
    max_new_tokens = room if wanted is None else wanted
    if max_new_tokens > room:
        raise RequestError(
            f"Requested token count exceeds the model's maximum context length of "
            f"{context_length} tokens: {len(prompt)} in the input and {max_new_tokens} to generate."
        )
    name = rid or new_rid
    return GenerateRequest(
        rid=name,
        input_ids=tuple(ids),
        stream=bool(body.get("stream")),
        return_logprob=bool(body.get("return_logprob")),
        return_prompt_token_ids=bool(body.get("return_prompt_token_ids")),
        max_new_tokens=max_new_tokens,
        stop_token_ids=frozenset(params.get("stop_token_ids") or ()),
        ignore_eos=bool(params.get("ignore_eos")),
        stream_interval=params.get("stream_interval") or 1,
        conversation=body.get("session_id") or body.get("routing_key") or name.partition(".")[0],
        params=params,
        images=images,
        prompt_ids=tuple(prompt) if images else (),
        top_logprobs=body.get("top_logprobs_num") or 0,
        adapter=body.get("lora_path") or "",
    )


def _check_supported(body: Mapping[str, Any], params: Mapping[str, Any]) -> None:
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


def _check_ranges(params: Mapping[str, Any]) -> None:
    def check(key: str, default: float, fits: Callable[[float], bool], rule: str) -> None:
        given = params.get(key)
        value = default if given is None else given
        if not fits(value):
            raise RequestError(f"{key} must be {rule}, got {value}.")

    check("temperature", 1.0, lambda v: 0 <= v < math.inf, "a non-negative finite number")
    check("top_p", 1.0, lambda v: 0 < v <= 1, "in (0, 1]")
    check("min_p", 0.0, lambda v: 0 <= v <= 1, "in [0, 1]")
    check("top_k", -1, lambda v: v >= 1 or v == -1, "-1 (disable) or at least 1")
    check("frequency_penalty", 0.0, lambda v: -2 <= v <= 2, "in [-2, 2]")
    check("presence_penalty", 0.0, lambda v: -2 <= v <= 2, "in [-2, 2]")
    check("repetition_penalty", 1.0, lambda v: 0 < v <= 2, "in (0, 2]")
    check("max_new_tokens", 0, lambda v: v >= 0, "at least 0")
