"""The collector of traces, from the recipe or OpenTelemetry's variables. Off without either.

Of the variables these are read, as their specification has them: OTEL_EXPORTER_OTLP_TRACES_ENDPOINT
(used as it is), OTEL_EXPORTER_OTLP_ENDPOINT (/v1/traces is added), OTEL_EXPORTER_OTLP_HEADERS and
its _TRACES_ twin, OTEL_SDK_DISABLED and OTEL_TRACES_EXPORTER=none, which win over all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
PATH = "/v1/traces"
_OWN_ENDPOINT = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
_HEADERS = ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS")
_PORTS = {"http": 80, "https": 443}


class CollectorUnclear(ValueError):
    """The collector of recipe or environment is not an address. The message names the fix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collector:
    """An OTLP/HTTP collector. headers: sent with each request and never shown, as keys are."""

    host: str
    port: int
    path: str
    secure: bool
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.secure else 'http'}://{host}:{self.port}{self.path}"


def collector_of(given: str, environment: Mapping[str, str]) -> Collector | None:
    """The collector of traces; None = traces are off. Raises CollectorUnclear.

    given: `run.traces` of the recipe or of the command line, in the form of
    OTEL_EXPORTER_OTLP_ENDPOINT. It wins over the environment.
    """
    off = environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    if off or environment.get("OTEL_TRACES_EXPORTER", "").strip() == "none":
        return None
    headers = {
        key: value for name in _HEADERS for key, value in _headers(name, environment.get(name, ""))
    }
    if not given and (own := environment.get(_OWN_ENDPOINT, "").strip()):
        return _collector(own, _OWN_ENDPOINT, headers, path="")
    if base := given or environment.get(ENDPOINT, "").strip():
        return _collector(base, "run.traces" if given else ENDPOINT, headers, path=PATH)
    return None


def endpoint_fault(endpoint: str) -> str:
    """The error of an endpoint in the recipe; "" if it is right."""
    try:
        _collector(endpoint, "traces", {}, path=PATH)
    except CollectorUnclear as error:
        return str(error)
    return ""


def _collector(url: str, key: str, headers: Mapping[str, str], *, path: str) -> Collector:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise CollectorUnclear(f"{key} = {url!r} is not an address ({error}): {_FIX}") from None
    clean = url.isascii() and url.isprintable() and " " not in url
    if parts.scheme not in _PORTS or not parts.hostname or not clean or parts.username is not None:
        raise CollectorUnclear(f"{key} is not the address of a collector: {_FIX}")
    return Collector(
        host=parts.hostname,
        port=port or _PORTS[parts.scheme],
        path=(parts.path.rstrip("/") + path) or "/",
        secure=parts.scheme == "https",
        headers=headers,
    )


_FIX = "write http://HOST:PORT, as http://127.0.0.1:4318; keys belong into " + _HEADERS[0]


def _headers(variable: str, text: str) -> list[tuple[str, str]]:
    """The pairs of "key=value,key=value", values percent-encoded. Raises
    CollectorUnclear, whose message leaves out the value."""
    found = []
    for pair in filter(None, map(str.strip, text.split(","))):
        key, sign, value = pair.partition("=")
        key, value = key.strip(), unquote(value.strip())
        plain = key.isascii() and key.replace("-", "").replace("_", "").isalnum()
        if not (sign and plain and value.isascii() and value.isprintable()):
            raise CollectorUnclear(f"{variable}: write KEY=VALUE,KEY=VALUE, percent-encoded")
        found.append((key, value))
    return found
