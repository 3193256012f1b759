"""Protocols: the text form of prompts, actions, observations and answers. One file for each."""

from engine.core.protocols.base import Protocol as Protocol
from engine.core.protocols.base import Rewriting as Rewriting
