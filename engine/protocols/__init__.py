"""How one agent speaks: prompt, action, observation, end. One file a protocol."""

from engine.protocols.base import Protocol

__all__ = ["Protocol"]
