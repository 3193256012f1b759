"""TLS from PEM files, checked before anything listens or connects.

A server shows a certificate; a client trusts one authority. A server may also require certificates
of its clients, as a permission. Bearer tokens, not certificates, identify clients.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path


class TlsError(Exception):
    """A PEM file cannot be used. The message names the file and the fix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """Certificate chain and private key of a server or a client, PEM."""

    chain: bytes
    key: bytes


def read_certificate(chain: Path, key: Path) -> Certificate:
    """The server's certificate, leaf first, and its key without a passphrase. Raises TlsError if
    they cannot be read or do not belong together."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(chain, key, password="")
        return Certificate(chain=chain.read_bytes(), key=key.read_bytes())
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        raise TlsError(
            f"certificate {chain} with key {key}: {error}; give two PEM files that belong "
            "together, the key without a passphrase"
        ) from error


def read_authority(file: Path) -> bytes:
    """PEM certificates of the trusted authorities. Raises TlsError if it holds no certificate."""
    try:
        ssl.create_default_context(cafile=file)
        return file.read_bytes()
    except OSError as error:
        raise TlsError(
            f"authority {file}: {error}; give a PEM file with the certificate that signed the "
            "service's"
        ) from error
