"""What can go wrong with a browser.

- BrowserUnavailable: no browser can be started here; the message is one sentence with the fix
- BrowserLost: the browser ended, and every session in it
- PageFailed: the action failed; the policy reads the message unchanged
"""

from __future__ import annotations


class BrowserUnavailable(Exception):
    """No browser can be started; the message is for the operator."""


class BrowserLost(Exception):
    """The message says how."""


class PageFailed(Exception):
    """An action failed; the message is for the policy. `crashed`: the page was lost."""

    def __init__(self, message: str, *, crashed: bool = False) -> None:
        super().__init__(message)
        self.crashed = crashed
