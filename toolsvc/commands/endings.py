"""How a command reaches a service, and how it ends where it cannot do what it was asked.

Invariant: whatever keeps a command from its work is one sentence on standard error."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from grpc import StatusCode

from toolsvc.edge.client import Client
from toolsvc.errors import StartError
from toolwright.rpc.errors import ListenError, ServiceError, TransportError
from toolwright.rpc.options import TOKEN_VARIABLE
from toolwright.rpc.tls import Certificate, TlsError, read_authority, read_certificate

Authority = Annotated[
    Path | None, typer.Option(help="PEM file of who signed the service's certificate")
]

Shown = Annotated[
    Path | None,
    typer.Option(help="PEM file of a certificate of your own, for a service with --tls-client-ca"),
]
ShownKey = Annotated[Path | None, typer.Option(help="PEM file: the certificate's key")]


class UnusableWords(Exception):
    """What was typed makes no sense; the message is one sentence."""


def trust(
    tls_ca: Path | None, tls_cert: Path | None, tls_key: Path | None
) -> tuple[bytes | None, Certificate | None]:
    """The authority to trust, and the certificate to present. Raises TlsError or UnusableWords."""
    if (tls_cert is None) != (tls_key is None):
        raise UnusableWords("give --tls-cert and --tls-key together")
    if tls_cert is not None and tls_ca is None:
        raise UnusableWords("give --tls-ca too: without it the service is not spoken to by TLS")
    return (
        None if tls_ca is None else read_authority(tls_ca),
        None if tls_cert is None or tls_key is None else read_certificate(tls_cert, tls_key),
    )


def client_of(
    address: str, tls_ca: Path | None, tls_cert: Path | None, tls_key: Path | None
) -> Client:
    """With the bearer token of the environment. Raises TlsError or UnusableWords."""
    return Client(address, os.environ.get(TOKEN_VARIABLE, ""), *trust(tls_ca, tls_cert, tls_key))


@contextlib.contextmanager
def one_sentence(address: str = "", *, extra: str = "") -> Iterator[None]:
    """Exit code 1 for what went wrong within. `address`: of the service that was asked. `extra`:
    what installs the packages that are imported within."""
    try:
        yield
    except TransportError as error:
        sentence = f"no service answers at {address} ({error})"
        if error.code is StatusCode.UNAUTHENTICATED:
            sentence = f"the service at {address} wants another bearer token: set {TOKEN_VARIABLE}"
    except (ListenError, ServiceError, StartError, TlsError, UnusableWords) as error:
        sentence = str(error)
    except ImportError as error:
        if not extra:
            raise
        sentence = f"this needs the package {error.name}: pip install 'toolwright[{extra}]'"
    else:
        return
    print(f"toolsvc: {sentence}", file=sys.stderr)
    raise typer.Exit(1)
