"""A small service that keeps the whole contract; `broken` breaks it rule by rule.

It is a yardstick for the suite and a text to read beside the contract, not a host: it knows no
sandbox, bounds no number of sessions, and forgets nothing of a session before it ends. `blobs`,
`sessions` and `calls` are its parts, each a class that the next one stands on; `service` puts them
behind the contract's methods, `server` behind an address. `tools` are the three that it serves.
"""

from toolsvc.check.reference.requests import refusal
from toolsvc.check.reference.server import serving
from toolsvc.check.reference.service import Reference
from toolsvc.check.reference.types import Call, Session

__all__ = ["Call", "Reference", "Session", "refusal", "serving"]
