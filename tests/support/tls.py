"""Certificates for loopback, made for one test."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import trustme


@dataclass(frozen=True, slots=True, kw_only=True)
class Pem:
    """Files of one authority and of a certificate that it signed for loopback."""

    authority: Path
    certificate: Path
    key: Path

    @property
    def options(self) -> tuple[str, ...]:
        """Of `toolsvc serve`."""
        return ("--tls-cert", str(self.certificate), "--tls-key", str(self.key))


def make_pem(folder: Path) -> Pem:
    """In `folder`, which must not be there yet."""
    folder.mkdir()
    authority = trustme.CA()
    signed = authority.issue_cert("127.0.0.1", "localhost")
    made = Pem(
        authority=folder / "authority.pem",
        certificate=folder / "certificate.pem",
        key=folder / "key.pem",
    )
    authority.cert_pem.write_to_path(str(made.authority))
    for part in signed.cert_chain_pems:
        part.write_to_path(str(made.certificate), append=True)
    signed.private_key_pem.write_to_path(str(made.key))
    return made
