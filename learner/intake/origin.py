"""Whether the trajectories of a file were written with the policy's own tokenizer and template.

Token ids mean the same only under the same tokenizer, and nothing else would tell: ids of another
one are numbers of this vocabulary too.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from learner.errors import DataError
from toolwright.model.model_folder import ModelFolderError, tokenizer_hash
from toolwright.types import Trajectory


class Origin:
    """Looks at trajectories one by one, for the policy in `folder`."""

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
        """DataError for a trajectory of another tokenizer; one that names none is counted."""
        self._seen += 1
        found = trajectory.tokenizer_hash
        if not found:
            self._unnamed += 1
        elif self._expected and found != self._expected:
            raise DataError(
                f"trajectory {trajectory.id} was written with tokenizer and chat template "
                f"{found[:12]}, those of {self._folder} are {self._expected[:12]}: write the file "
                f"again with that folder (render.model, or policy.model for `engine sample`) and "
                "the same policy.template, or copy tokenizer.json, tokenizer_config.json and "
                "chat_template.jinja of the policy that wrote it into the folder, if its "
                "vocabulary is the same"
            )

    def sentence(self) -> str | None:
        """What was not compared; None where all was."""
        if self._unknown:
            return f"tokenizers were not compared: {self._unknown}"
        if self._unnamed:
            return (
                f"{self._unnamed} of {self._seen} trajectories name no tokenizer: whether their "
                f"token ids are those of {self._folder} was not compared"
            )
        return None
