"""Why foreign code could not be run; never why it failed once it ran.

SandboxError
  SandboxUnavailable    nothing here can hold foreign code safely: refuse to start
  SandboxDown           a jail broke while serving: retry, nothing ran
"""

from __future__ import annotations


class SandboxError(Exception):
    """Root of what this package raises on purpose."""


class SandboxUnavailable(SandboxError):
    """No isolation level passed on this machine. The message is one sentence with the fix."""


class SandboxDown(SandboxError):
    """A jail could not be started or died; another try may find a new one."""
