"""A small service that keeps the whole contract; `broken` breaks it rule by rule.

It is a yardstick for the suite and a text to read beside the contract, not a host: it knows no
sandbox, bounds no number of sessions, and forgets nothing of a session before it ends. `blobs`,
`sessions` and `calls` are its parts, each a class that the next one stands on; `service` puts them
behind the contract's methods, `server` behind an address. `tools` are the three that it serves.
"""

from tests.support.conformance.reference.requests import refusal
from tests.support.conformance.reference.server import serving
from tests.support.conformance.reference.service import Reference
from tests.support.conformance.reference.types import Call, ReferenceSession

__all__ = ["Call", "Reference", "ReferenceSession", "refusal", "serving"]
