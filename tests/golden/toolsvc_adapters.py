"""Golden examples of the tool service."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from toolsvc.schemas.validation import violations


def _validate(schema: Mapping[str, Any], value: Any) -> Any:
    found = violations(schema, value)
    return {"valid": not found, "violations": [[one.path, one.rule] for one in found]}


TOOLSVC_ADAPTERS: dict[str, Callable[..., Any]] = {"mtr.validate": _validate}
