"""The checks, by what they are about; `ALL` has them in the order in which people read them."""

from __future__ import annotations

from toolsvc.check.check import Check
from toolsvc.check.checks import (
    blobs,
    cancelling,
    closing,
    describing,
    effects,
    failures,
    forgetting,
    forks,
    health,
    inputs,
    leases,
    limits,
    looking,
    observations,
    opening,
    patience,
    reasons,
    several,
    streams,
)

ALL: tuple[Check, ...] = tuple(
    value
    for module in (
        health,
        describing,
        failures,
        effects,
        forgetting,
        limits,
        opening,
        closing,
        leases,
        reasons,
        several,
        patience,
        cancelling,
        looking,
        streams,
        forks,
        observations,
        blobs,
        inputs,
    )
    for value in vars(module).values()
    if isinstance(value, Check)
)
