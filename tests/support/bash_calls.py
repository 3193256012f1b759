"""Calls as R2E-Gym's agents write them."""

from __future__ import annotations


def function(name: str, **parameters: str) -> str:
    inner = "".join(f"<parameter={key}>{value}</parameter>" for key, value in parameters.items())
    return f"<function={name}>{inner}</function>"
