"""The policy's requests to a browser."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, Field, model_validator

from toolsvc.plugin.tool import STRICT

ActionName = Literal["navigate", "click", "type", "scroll", "back", "read", "screenshot"]

LONGEST_URL = 4096
LONGEST_TEXT = 10_000

_NEEDED: dict[str, tuple[str, ...]] = {
    "navigate": ("url",),
    "click": ("ref",),
    "type": ("ref", "text"),
}
_ALLOWED = {"type": ("submit",), "scroll": ("direction", "ref"), "read": ("start",)}


class BrowserArguments(BaseModel):
    """An action and its arguments; arguments of another action are refused."""

    model_config = STRICT

    action: ActionName
    url: str | None = Field(
        default=None,
        max_length=LONGEST_URL,
        description="navigate: the whole address, http or https",
    )
    ref: str | None = Field(
        default=None,
        pattern=r"^(f\d+)?e\d+$",
        description="click, type, scroll: an element, as in [ref=e12] of the page's text",
    )
    text: str | None = Field(
        default=None,
        max_length=LONGEST_TEXT,
        description="type: replaces what is in the field; of a list, the option to choose",
    )
    submit: bool = Field(default=False, description="type: press Enter afterwards")
    direction: Literal["up", "down"] | None = Field(
        default=None, description="scroll: by one window; or give a ref to scroll to"
    )
    start: int = Field(default=0, ge=0, description="read: from this character of the text on")

    @model_validator(mode="after")
    def _fits_the_action(self) -> Self:
        needed = _NEEDED.get(self.action, ())
        missing = [name for name in needed if getattr(self, name) is None]
        if missing:
            raise ValueError(f"{self.action} needs {' and '.join(missing)}")
        strange = self.model_fields_set - {"action", *needed, *_ALLOWED.get(self.action, ())}
        given = sorted(name for name in strange if getattr(self, name) not in (None, False, 0))
        if given:
            raise ValueError(f"{self.action} takes no {' and no '.join(given)}")
        if self.action == "scroll" and (self.direction is None) == (self.ref is None):
            raise ValueError("scroll needs a direction or a ref, and not both")
        return self
