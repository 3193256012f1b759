"""A session's images and videos: those of the task, and the results of its calls.

Invariants
- Images are numbered from 1 in the order in which they came; a number never changes its image.
- A session holds at most so many images, and results of at most so many bytes. The task's own files
  are not counted: blobs are the host's, which bounds them, and the operator's files are opened for
  each call that looks at them.
- Metadata name files beneath the operator's folder and no others.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from toolsvc.errors import Reason, Refused
from toolsvc.tools.image.types import ImageFault, Picture, UnusableFile


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldFile:
    """A file's bytes."""

    data: bytes

    def open(self) -> BinaryIO:
        """Opens the file at its start, with a descriptor of its own; the caller closes it."""
        file = open(os.memfd_create("image", os.MFD_CLOEXEC), "w+b")  # noqa: SIM115
        file.write(self.data)
        file.seek(0)
        return file


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """A file of the operator's."""

    path: Path

    def open(self) -> BinaryIO:
        """As `HeldFile.open`. Raises OSError if it is gone."""
        return self.path.open("rb")


Source = HeldFile | StoredFile


class Album:
    """Album of one session."""

    def __init__(
        self,
        images: Sequence[Source] = (),
        videos: Sequence[Source] = (),
        *,
        most_images: int,
        most_bytes: int,
    ) -> None:
        """Raises Refused if the task brings more than a session may hold."""
        self.images = list(images)
        self.videos = list(videos)
        self._most_images = most_images
        self._most_bytes = most_bytes
        self._bytes = 0
        if len(images) > most_images:
            raise Refused(
                Reason.INVALID_REQUEST,
                f"the task brings {len(images)} images; a session holds {most_images}",
                fix="raise image.images",
            )

    def image(self, number: int) -> Source:
        """Image with that number. Raises UnusableFile if no image has it."""
        return _numbered(self.images, number, "image")

    def video(self, number: int) -> Source:
        """Video with that number. Raises UnusableFile if no video has it."""
        return _numbered(self.videos, number, "video")

    def expect(self, count: int) -> None:
        """Raises UnusableFile if `count` images more would be too many."""
        if len(self.images) + count > self._most_images:
            raise UnusableFile(
                ImageFault.LIMIT,
                f"the session holds {len(self.images)} images and can hold {self._most_images}",
            )

    def add(self, pictures: Sequence[Picture]) -> list[int]:
        """Adds pictures and returns their numbers. Raises UnusableFile, and adds nothing, if they
        are too large."""
        self.expect(len(pictures))
        more = sum(len(picture.data) for picture in pictures)
        if self._bytes + more > self._most_bytes:
            raise UnusableFile(
                ImageFault.LIMIT,
                f"the session's results would have more than {self._most_bytes} bytes",
            )
        first = len(self.images) + 1
        self._bytes += more
        self.images += [HeldFile(data=picture.data) for picture in pictures]
        return list(range(first, first + len(pictures)))


def named_files(metadata: Mapping[str, Any], key: str, folder: Path) -> list[Source]:
    """The files that `metadata[key]` names, a list of paths beneath `folder`. Raises Refused if one
    is not there."""
    names = metadata.get(key, [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise Refused(
            Reason.INVALID_REQUEST,
            f"metadata.{key} is {names!r:.200}, not a list of paths",
            subject=key,
            fix=f"name files beneath {folder}",
        )
    return [StoredFile(path=_beneath(folder, name, key)) for name in names]


def _beneath(folder: Path, name: str, key: str) -> Path:
    try:
        path = (folder / name).resolve()
        if path.is_relative_to(folder.resolve()) and path.is_file():
            return path
    except (OSError, ValueError):
        pass  # not a valid file name
    raise Refused(
        Reason.INVALID_REQUEST,
        f"metadata.{key}: there is no file {name!r:.200} beneath image.folder",
        subject=key,
        fix=f"put it into {folder}",
    )


def _numbered(sources: Sequence[Source], number: int, what: str) -> Source:
    if number > len(sources):
        there = f"there are {len(sources)}" if sources else "there is none"
        raise UnusableFile(ImageFault.REQUEST, f"there is no {what} {number}: {there}")
    return sources[number - 1]
