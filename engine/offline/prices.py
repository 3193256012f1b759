"""What tokens cost. Pure."""

from __future__ import annotations

from dataclasses import dataclass

MILLION = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Prices of a million tokens, in any currency. None counts as 0; without both, no cost."""

    read: float | None = None
    """Price of a million prompt tokens."""
    written: float | None = None
    """Price of a million generated tokens."""

    @property
    def known(self) -> bool:
        return self.read is not None or self.written is not None

    def cost(self, read: int, written: int) -> float | None:
        """Cost of so many tokens, to nine digits; None without prices."""
        if not self.known:
            return None
        paid = read * (self.read or 0.0) + written * (self.written or 0.0)
        return float(f"{paid / MILLION:.9g}")
