"""The certificate of one server: self-signed at its start. Ray brings it to its clients, and no
other process trusts it. Its key never leaves the server's process.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from toolwright.rpc.tls import Certificate

_LIFE = timedelta(days=3650)
"""Longer than any process lives."""
_CLOCKS = timedelta(days=1)
"""Largest difference between the nodes' clocks."""


def self_signed(name: str) -> Certificate:
    """name: for clients to expect (`open_channel`)."""
    key = ec.generate_private_key(ec.SECP256R1())
    shown = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(shown)
        .issuer_name(shown)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS)
        .not_valid_after(now + _LIFE)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, SHA256())
    )
    return Certificate(
        chain=certificate.public_bytes(Encoding.PEM),
        key=key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    )
