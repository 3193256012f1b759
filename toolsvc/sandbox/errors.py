"""Errors if foreign code could not run; never errors of code that ran.

SandboxError
  SandboxUnavailable    nothing here can hold foreign code safely: refuse to start
  SandboxDown           a jail broke while serving: retry, nothing ran
"""

from __future__ import annotations


class SandboxError(Exception):
    """Base class of this package's errors."""


class SandboxUnavailable(SandboxError):
    """No isolation level passed on this machine. The message is one sentence with the fix."""


class SandboxDown(SandboxError):
    """A jail could not be started or died; a retry may get a new jail."""
