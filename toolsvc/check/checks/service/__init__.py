"""Checks that do not depend on a service's tools."""

from __future__ import annotations

from toolsvc.check.check import checks_of
from toolsvc.check.checks.service import (
    blobs,
    describing,
    health,
    hostile,
    inputs,
    patience,
    reasons,
    streams,
)

SERVICE = checks_of(health, describing, reasons, patience, streams, blobs, inputs, hostile)
