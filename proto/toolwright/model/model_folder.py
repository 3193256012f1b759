"""What two processes must find the same in a policy's Hugging Face folder: tokenizer, shape.

Both are hashes over files alone: no tokenizer library, no weights read. How a file is written
(blanks, order of keys, the spelling of merges by another version of the library) changes neither
what a tokenizer does nor its hash.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

LONGEST_HEADER = 100 << 20
"""Bytes; safetensors itself refuses longer ones."""
_TEMPLATE_FILE = "chat_template.jinja"


class ModelFolderError(ValueError):
    """A file of the folder cannot be read; the message names it."""


def tokenizer_hash(folder: Path) -> str:
    """SHA-256 hex over tokenizer.json and the chat templates: ids mean the same only under both.

    ModelFolderError where the folder has no tokenizer.json, or one that is no JSON.
    """
    tokenizer = _json(folder / "tokenizer.json")
    config_file = folder / "tokenizer_config.json"
    config = _json(config_file) if config_file.is_file() else {}
    digest = hashlib.sha256(json.dumps(_what_it_does(tokenizer), sort_keys=True).encode())
    try:
        templates = chat_templates(folder, config)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ModelFolderError(f"the chat template of {folder} cannot be read: {error}") from error
    digest.update(json.dumps(templates, sort_keys=True).encode())
    return digest.hexdigest()


def chat_templates(folder: Path, tokenizer_config: Mapping[str, Any]) -> dict[str, str]:
    """Templates by name, most folders have one, "default". A file of its own wins over what stands
    in tokenizer_config.json."""
    file = folder / _TEMPLATE_FILE
    found = (
        file.read_text(encoding="utf-8")
        if file.is_file()
        else tokenizer_config.get("chat_template")
    )
    if isinstance(found, str):
        return {"default": found}
    return {str(one["name"]): str(one["template"]) for one in found or ()}


def shape_hash(folder: Path) -> str:
    """SHA-256 hex over config.json and the headers of the safetensors files, by name.

    Not over the weights' bytes: of a large policy these are hundreds of gigabytes, read at every
    start. A header names every tensor with type and shape, so another architecture or size is
    noticed; other weights of the same shape are not. ModelFolderError.
    """
    digest = hashlib.sha256()
    for file in (folder / "config.json", *sorted(folder.glob("*.safetensors"))):
        try:
            content = _header(file) if file.suffix == ".safetensors" else file.read_bytes()
        except (OSError, ValueError) as error:
            raise ModelFolderError(f"{file} cannot be read: {error}") from error
        digest.update(f"{file.name} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def _what_it_does(tokenizer: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of tokenizer.json that make ids of a text.

    Truncation and padding are what a program sets. Newer versions of the library write merges as
    pairs, older ones as texts with a blank, and each leaves out flags of the model that are off.
    """
    parts = {
        name: part for name, part in tokenizer.items() if name not in ("truncation", "padding")
    }
    model = parts.get("model")
    if isinstance(model, dict):
        on = {
            name: value for name, value in model.items() if value is not None and value is not False
        }
        if isinstance(merges := on.get("merges"), list):
            on["merges"] = [m.split(" ", 1) if isinstance(m, str) else m for m in merges]
        parts["model"] = on
    return parts


def _header(file: Path) -> bytes:
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        header = stream.read(min(length, LONGEST_HEADER + 1))
    if len(header) != length:
        raise ValueError(f"no safetensors file: its header would have {length} bytes")
    return header


def _json(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelFolderError(f"{file} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise ModelFolderError(f"{file} cannot be read: it holds no JSON object")
    return found
