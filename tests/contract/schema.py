"""SGLang's own wire schema, loaded from the installed wheel.

Owns the search for the generated file and the two judgements the tests need: is this body admitted,
and is this event what the schema says. The file stands alone: it needs msgspec, not SGLang.
"""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PATTERN = ".venv-sglang/lib/python3*/site-packages/sglang/api/v1/api_types.py"


@cache
def load() -> ModuleType:
    """The generated module; fails the test when SGLang is not installed."""
    found = sorted(ROOT.glob(PATTERN))
    if not found:
        raise AssertionError(f"{ROOT / PATTERN} is not there: run make setup")
    spec = importlib.util.spec_from_file_location("_sglang_api_types", found[0])
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def refusal(body: object) -> str | None:
    """The text with which the schema refuses a /generate body; None if it admits it."""
    schema = load()
    try:
        schema.GenerateRequest.from_json_value(body)
    except schema.JsonContractError as error:
        return str(error)
    return None


def check_answer(body: dict[str, Any]) -> Any:
    """The decoded answer or chunk, with nothing in it that the schema would drop or change."""
    schema = load()
    decoded = schema.GenerateResponse.from_json_value(body)
    meta = body["meta_info"]
    encoded = decoded.to_json_value()["meta_info"]
    for key in encoded.keys() & meta.keys():
        assert _without_nulls(encoded[key]) == _without_nulls(meta[key]), (
            f"meta_info.{key} does not survive SGLang's own codec"
        )
    finish = meta["finish_reason"]
    if finish is not None:
        kinds = {
            "stop": schema.FinishStop,
            "length": schema.FinishLength,
            "abort": schema.FinishAbort,
        }
        assert type(decoded.meta_info.finish_reason) is kinds[finish["type"]]
    return decoded


def check_error_event(body: dict[str, Any]) -> Any:
    """The decoded error event of a stream."""
    decoded = load().GenerateStreamError.from_json_value(body)
    assert decoded.error is not None
    assert decoded.error.message
    assert decoded.error.code == 400
    return decoded


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: item for key, item in value.items() if item is not None}
    return value
