"""A verification as a folder: whole or not at all, and never over one that is there."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tasks.errors import NotMade
from tasks.verifications.columns import VerificationDraft
from toolwright.reading.task_rows.refusal import RowRefused
from toolwright.reading.verification_folder import FILES, PATCH, SETTINGS


def write_folder(made: VerificationDraft, output: Path) -> bool:
    """Whether it was written: an existing folder is kept as it is. Raises NotMade if it cannot be
    written, RowRefused if the row holds text that no file can."""
    folder = output / made.id
    if folder.exists():
        return False
    draft = folder.with_name(f".{folder.name}.{os.getpid()}")
    try:
        draft.mkdir(parents=True)
        (draft / SETTINGS).write_text("".join(_toml(made.settings)), encoding="utf-8")
        if made.patch:
            (draft / PATCH).write_bytes(made.patch.encode())  # with the line ends that it has
        for path, text in made.files.items():
            place = draft / FILES / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(text.encode())
        for path, source in made.folders.items():
            shutil.copytree(source, draft / FILES / path, symlinks=True)
        draft.rename(folder)
    except UnicodeEncodeError as error:
        raise RowRefused("half_a_character", f"text that is not UTF-8 ({error.reason})") from error
    except OSError as error:
        raise NotMade(f"{folder} cannot be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return True


def _toml(settings: Mapping[str, Any]) -> Iterator[str]:
    """Tables last, as TOML has them."""
    for key, value in settings.items():
        if not isinstance(value, Mapping):
            yield f"{key} = {_value(value)}\n"
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield f"\n[{key}]\n"
            yield from (f"{_value(name)} = {_value(one)}\n" for name, one in value.items())


def _value(value: Any) -> str:
    """JSON's texts are TOML's, but for one character that TOML wants escaped."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
