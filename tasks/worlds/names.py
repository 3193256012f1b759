"""Invented names: two pieces each, so that many names have a piece in common. Pure.

Invariants
- No name is drawn twice, and no name of one kind is a name of another.
- A name's pieces joined are the name.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping

PIECES: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "person": (
        (
            "Alda", "Bruno", "Cilka", "Dorin", "Edda", "Falko", "Gerda", "Hanno", "Ilka", "Jorun",
            "Katla", "Ludo", "Mirek", "Nadja", "Orla", "Pavo", "Quirin", "Renka", "Sorin", "Tilda",
            "Ubaldo", "Vesna", "Wenzel", "Xaver", "Yrsa", "Zoltan", "Birk", "Enya", "Lasko", "Odil",
        ),
        (
            " Merrin", " Brack", " Tolvar", " Quist", " Harrow", " Venn", " Sandoz", " Pellam",
            " Ostrik", " Dunmar", " Castell", " Imhof", " Jarrow", " Kessel", " Lomond", " Nyberg",
            " Orsini", " Praunheim", " Rudd", " Stavros", " Thorne", " Umbrecht", " Vautrin",
            " Wexler", " Yarrow", " Zabel", " Galt", " Ferrol", " Hutten", " Askew",
        ),
    ),
    "town": (
        (
            "Kan", "Bel", "Tor", "Mar", "Ost", "Vel", "Hol", "Dru", "Fen", "Gar",
            "Lin", "Nor", "Pol", "Rav", "Sil", "Tam", "Wes", "Zil", "Ash", "Clo",
        ),
        (
            "vik", "burg", "stead", "holm", "mouth", "ford",
            "wick", "haven", "dale", "gate", "march", "fell",
        ),
    ),
    "company": (
        (
            "Orrel", "Bantam", "Corvex", "Delphin", "Eltrax", "Fabrik", "Glimmer", "Halcyon",
            "Indigo", "Jupiter", "Kestrel", "Lanark", "Meridian", "Nimbus", "Opaline", "Paragon",
            "Quantock", "Radiant", "Saturn", "Trident", "Umbra", "Vertex", "Westray", "Zenith",
        ),
        (" Glass", " Mills", " Press", " Bank", " Motors", " Foods", " Tools", " Lines"),
    ),
    "river": (
        (
            "Olm", "Isk", "Rhav", "Dvin", "Uld", "Emsk", "Jurr", "Lohn",
            "Pask", "Sprin", "Traun", "Vard", "Wupp", "Yss", "Zwet", "Ager",
        ),
        ("ach", "una", "ell", "ira", "ow", "enz"),
    ),
}  # fmt: skip
"""By kind: what names begin and end with."""


def pieces(kinds: Iterable[str] = PIECES) -> list[str]:
    """All pieces of the names of some kinds."""
    return [piece for kind in kinds for ends in PIECES[kind] for piece in ends]


def most(kind: str) -> int:
    """How many names of a kind there are."""
    first, second = PIECES[kind]
    return len(first) * len(second)


def draw_names(kind: str, count: int, draw: random.Random) -> list[str]:
    """`count` different names. Raises ValueError for more than there are."""
    if not 0 <= count <= most(kind):
        raise ValueError(f"{count} names for a {kind}: there are {most(kind)}")
    first, second = PIECES[kind]
    places = draw.sample(range(most(kind)), count)
    return [first[place // len(second)] + second[place % len(second)] for place in places]
