"""What a session's metadata say of its task, checked against what the operator allows.

    {"repository": "calc.bundle", "commit": "3f2a...", "verification": "calc-1"}
    {"image": "r2e/calc:3f2a", "verification": "calc-1"}
    {"verification": "calc-1"}             with the image that the verification names

`repository` and `verification` are below the operator's folders. Where such a folder is itself the
one repository, or the one verification, its name can be left out. Without a repository the one of
the image is taken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from toolsvc.errors import Reason, Refused
from toolsvc.tools.files import Entry
from toolsvc.tools.swe.checkout import Checkouts, below
from toolsvc.tools.swe.verifying.verification import Verification, read_verification
from toolwright.reading.verification_folder import SETTINGS

_KEYS = ("repository", "commit", "image", "verification")


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """`checkout` is empty where the repository is in the image; `verification` is None where
    nothing is to be verified here."""

    image: str
    checkout: Sequence[Entry]
    verification: Verification | None


class Tasks:
    """Reads tasks. `images`: patterns of those that metadata may name beside `image`."""

    def __init__(
        self,
        *,
        repositories: Path | None,
        verifications: Path | None,
        image: str,
        images: Sequence[str],
        containers: bool,
        limit: int,
    ) -> None:
        """`containers`: whether boxes are made of images. `limit`: bytes of a checkout."""
        self._checkouts = None if repositories is None else Checkouts(repositories, limit)
        self._verifications = None if verifications is None else verifications.resolve()
        self._image = image
        self._images = images
        self._containers = containers
        self._limit = limit

    async def read(self, metadata: Mapping[str, Any]) -> Task:
        """Raises Refused if the metadata name what is not there, or not allowed."""
        given = {key: metadata.get(key, "") for key in _KEYS}
        for key, value in given.items():
            if not isinstance(value, str):
                raise _refused(key, f"is {value!r:.80}, not a text", "give its name")
        image = self._allowed(given["image"])
        verification = await asyncio.to_thread(self._verification, given["verification"])
        if verification is not None and verification.file.reward_files and not self._containers:
            raise _refused(
                "verification",
                f"is {verification.name!r}, whose command writes the reward: a local box has one "
                "account, so the program under test could write it too",
                "set swe.runner to docker, podman or kubernetes",
            )
        checkout: Sequence[Entry] = ()
        if self._containers and verification is not None and verification.file.image:
            image = given["image"] = verification.file.image  # the operator's word
        if self._checkouts is not None and (given["repository"] or not given["image"]):
            checkout = await self._checkouts.get(given["repository"], given["commit"])
        elif given["repository"] or given["commit"]:
            raise _refused("repository", "is set, and no repositories are served", _REPOSITORIES)
        elif not image:
            raise _refused("image", "is missing, and no repositories are served", _REPOSITORIES)
        return Task(image=image, checkout=checkout, verification=verification)

    def _allowed(self, image: str) -> str:
        if not image or image == self._image:
            return self._image
        if not any(fnmatchcase(image, pattern) for pattern in self._images):
            raise _refused("image", f"is {image!r}, which is not allowed", "add it to swe.images")
        return image

    def _verification(self, name: str) -> Verification | None:
        root = self._verifications
        if root is None:
            if name:
                fix = "start the service with swe.verifications=FOLDER"
                raise _refused("verification", "is set, and no verifications are served", fix)
            return None
        if not name and not (root / SETTINGS).exists():
            return None
        return read_verification(below(root, name, "verification"), name, self._limit)


_REPOSITORIES = "start the service with swe.repositories=FOLDER, or name an image"


def _refused(key: str, what: str, fix: str) -> Refused:
    return Refused(Reason.INVALID_REQUEST, f"metadata.{key} {what}", subject=key, fix=fix)
