"""What the pre-check of `simulated:` says of a wrong edition, as the agent reads it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

KIND = "validation_error"


def refusal(function: Mapping[str, Any]) -> dict[str, Any]:
    """function: of a tool that wants an edition."""
    expected = str(function["parameters"]["properties"]["edition"]["enum"])
    violation = {"path": "$.edition", "rule": "enum", "expected": expected}
    told = {"type": KIND, "stage": "pre", "tool": function["name"], "violations": [violation]}
    return {"status": "error", "error": told}
