"""Which network addresses a page may be fetched from; pure.

A page's address is chosen by the policy or by a stranger's redirect: behind it may stand a machine
of the operator's own network (server-side request forgery).
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

_NAT64 = IPv6Network("64:ff9b::/96")


def is_public(address: str) -> bool:
    """Whether it is of the public internet: not loopback, private, link-local (where clouds keep
    credentials), shared, multicast or reserved, nor an IPv6 address that stands for such a one."""
    plain = ip_address(address.partition("%")[0])
    if isinstance(plain, IPv6Address):
        if plain.sixtofour is not None:
            return False  # Obsolete (RFC 7526), and of use only to get around this.
        if plain in _NAT64:
            plain = IPv4Address(int(plain) & 0xFFFFFFFF)
        else:
            plain = plain.ipv4_mapped or plain
    return plain.is_global and not plain.is_multicast and not plain.is_reserved
