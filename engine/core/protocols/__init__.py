"""How one agent speaks: prompt, action, observation, end. One file a protocol."""

from engine.core.protocols.base import Protocol

__all__ = ["Protocol"]
