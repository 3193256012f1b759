"""Checks that trajectories were written with the policy's own tokenizer and chat template.

Ids of another tokenizer are valid ids of this vocabulary too. So no other check would notice them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from learner.errors import DataError
from toolwright.model.model_folder import ModelFolderError, tokenizer_hash
from toolwright.types import Trajectory


class TokenizerCheck:
    """Checks trajectories one by one for the policy in `folder`."""

    def __init__(self, folder: Path, template: Mapping[str, Any] | None = None) -> None:
        """template: the recipe's policy.template."""
        self._folder = folder
        self._unknown = ""
        try:
            self._expected = tokenizer_hash(folder, template)
        except ModelFolderError as error:
            self._expected = ""
            self._unknown = str(error)
        self._seen = 0
        self._unnamed = 0

    def check(self, trajectory: Trajectory) -> None:
        """Raises DataError if the trajectory names another tokenizer. Counts it if it names
        none."""
        self._seen += 1
        found = trajectory.tokenizer_hash
        if not found:
            self._unnamed += 1
        elif self._expected and found != self._expected:
            raise DataError(
                f"trajectory {trajectory.id} was written with tokenizer and chat template "
                f"{found[:12]}, those of {self._folder} are {self._expected[:12]}. Write the file "
                f"again with that folder (render.model, or policy.model for `engine sample`) and "
                "the same policy.template. Or, if the vocabularies are the same, copy "
                "tokenizer.json, tokenizer_config.json and chat_template.jinja of the policy that "
                "wrote it into the folder"
            )

    def sentence(self) -> str | None:
        """A warning about trajectories that were not compared; None if all were."""
        if self._unknown:
            return f"tokenizers were not compared: {self._unknown}"
        if self._unnamed:
            return (
                f"{self._unnamed} of {self._seen} trajectories name no tokenizer: their token ids "
                f"were not compared with those of {self._folder}"
            )
        return None
