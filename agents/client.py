"""The settings of a model client, as an agent gets them. Pure."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

POLICY, ASIDE = "policy", "aside"
"""Names of models: calls of the first are trained, calls of the second are recorded alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """How an agent reaches the policy. `kind = "function"` gets it as its second argument."""

    base_url: str
    """URL for OpenAI's clients; ends with /v1."""
    anthropic_base_url: str
    api_key: str
    model: str = POLICY
    aside: str = ASIDE
    """Model whose calls are recorded and never trained."""

    @classmethod
    def of(cls, root: str, key: str) -> ClientSettings:
        """root: the ingress's URL without a path. key: of the trajectory."""
        return cls(base_url=f"{root}/v1", anthropic_base_url=root, api_key=key)

    @classmethod
    def here(cls) -> ClientSettings:
        """The settings in this process's environment. Raises KeyError outside of an agent."""
        return cls(
            base_url=os.environ["OPENAI_BASE_URL"],
            anthropic_base_url=os.environ["ANTHROPIC_BASE_URL"],
            api_key=os.environ["OPENAI_API_KEY"],
        )

    def variables(self) -> Mapping[str, str]:
        """The environment variables that clients read."""
        return {
            "OPENAI_BASE_URL": self.base_url,
            "OPENAI_API_KEY": self.api_key,
            "OPENAI_MODEL": self.model,
            "ANTHROPIC_BASE_URL": self.anthropic_base_url,
            "ANTHROPIC_API_KEY": self.api_key,
            "ANTHROPIC_MODEL": self.model,
            "ANTHROPIC_SMALL_FAST_MODEL": self.aside,
            "TOOLWRIGHT_MODEL": self.model,
            "TOOLWRIGHT_ASIDE_MODEL": self.aside,
        }
