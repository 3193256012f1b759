"""Tokenizer, template and shape of a policy's folder, which two processes must find the same.

Both hashes are over files alone: no tokenizer library, no weights read. Blanks, the order of keys
and the spelling of merges change neither a tokenizer nor its hash.

Templates and special tokens are read as transformers 5 reads a local folder.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

LONGEST_HEADER = 100_000_000
"""Longest header of a safetensors file, in bytes; the format's own limit."""
TEMPLATE_FILE = "chat_template.jinja"
TEMPLATE_FOLDER = "additional_chat_templates"
"""Folder inside a policy folder that holds the other templates, NAME.jinja each."""
_CONFIG, _SPECIAL = "tokenizer_config.json", "special_tokens_map.json"


class ModelFolderError(ValueError):
    """A file of the folder cannot be read; the message names it."""


def tokenizer_hash(folder: Path, template: Mapping[str, Any] | None = None) -> str:
    """SHA-256 hex over tokenizer.json, the chat templates and the template's variables: ids mean
    the same only under the same three.

    template: the recipe's policy.template. Raises ModelFolderError if a file is missing or cannot
    be read.
    """
    tokenizer = read_json(folder / "tokenizer.json")
    digest = hashlib.sha256(json.dumps(_what_it_does(tokenizer), sort_keys=True).encode())
    digest.update(json.dumps(chat_templates(folder), sort_keys=True).encode())
    if template:
        digest.update(json.dumps(dict(template), sort_keys=True).encode())
    return digest.hexdigest()


def ids_hash(folder: Path) -> str:
    """SHA-256 hex over the ids of tokenizer.json and the token of each: two models with one hash
    can read the same ids. How a text becomes ids, and templates, do not count.

    Raises ModelFolderError if the file is missing or cannot be read.
    """
    tokenizer = read_json(folder / "tokenizer.json")
    model, added = tokenizer.get("model"), tokenizer.get("added_tokens")
    known = model.get("vocab") if isinstance(model, dict) else None
    ids = known if isinstance(known, dict) else {}
    own = [one for one in added or () if isinstance(one, dict)]
    ids = {**ids, **{str(one.get("content")): one.get("id") for one in own}}
    listed = known if isinstance(known, list) else []
    return hashlib.sha256(json.dumps([ids, listed], sort_keys=True).encode()).hexdigest()


def chat_templates(folder: Path) -> dict[str, str]:
    """Chat templates by name; most folders have one, "default", and some have none.

    Template files win over tokenizer_config.json, which holds a text, an object of texts by name,
    or a list of {"name", "template"}. Raises ModelFolderError.
    """
    files = {"default": folder / TEMPLATE_FILE} if (folder / TEMPLATE_FILE).is_file() else {}
    files |= {one.stem: one for one in sorted((folder / TEMPLATE_FOLDER).glob("*.jinja"))}
    try:
        if files:
            return {name: file.read_text(encoding="utf-8") for name, file in files.items()}
    except (OSError, UnicodeDecodeError) as error:
        raise ModelFolderError(f"a chat template of {folder} cannot be read: {error}") from error
    match _json_if_there(folder / _CONFIG).get("chat_template"):
        case None:
            return {}
        case str(template):
            return {"default": template}
        case dict(named) if all(isinstance(one, str) for one in named.values()):
            return dict(named)
        case list(named) if all(map(_is_named_template, named)):
            return {one["name"]: one["template"] for one in named}
    raise ModelFolderError(
        f"chat_template in {folder / _CONFIG} is neither a text, nor texts by name: write the "
        f"template to {TEMPLATE_FILE} beside it"
    )


def special_tokens(folder: Path) -> dict[str, str]:
    """Texts of eos_token, bos_token and so on, by name.

    special_tokens_map.json counts where tokenizer_config.json has no `added_tokens_decoder`, and
    then wins. Names of a model's own (`extra_special_tokens` as an object) are included. Raises
    ModelFolderError.
    """
    found = dict(_json_if_there(folder / _CONFIG))
    if "added_tokens_decoder" not in found:
        found |= _json_if_there(folder / _SPECIAL)
    own = found.get("extra_special_tokens")
    named = found | (own if isinstance(own, dict) else {})
    texts = {name: _token_text(value) for name, value in named.items() if name.endswith("_token")}
    return {name: text for name, text in texts.items() if text is not None}


def read_json(file: Path) -> dict[str, Any]:
    """A file's JSON object. Raises ModelFolderError."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelFolderError(f"{file} cannot be read: {error}") from error
    except (ValueError, RecursionError) as error:
        raise ModelFolderError(f"{file} cannot be read: it is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise ModelFolderError(f"{file} cannot be read: it holds no JSON object")
    return found


def read_header(file: Path) -> tuple[bytes, int]:
    """JSON header of a safetensors file without its length, and the file's size in bytes. Raises
    ModelFolderError."""
    try:
        size = file.stat().st_size
        with file.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if not 2 <= length <= min(LONGEST_HEADER, size - 8):
                raise ModelFolderError(
                    f"{file} cannot be read: it has {size} bytes and no safetensors header"
                )
            return stream.read(length), size
    except OSError as error:
        raise ModelFolderError(f"{file} cannot be read ({error.strerror})") from error


def shape_hash(folder: Path) -> str:
    """SHA-256 hex over config.json and the headers of the safetensors files, by name.

    Not over the weights' bytes: of a large policy these are hundreds of gigabytes, read at every
    start. A header names every tensor with type and shape, so another architecture or size is
    noticed; other weights of the same shape are not. Raises ModelFolderError.
    """
    digest = hashlib.sha256()
    for file in (folder / "config.json", *sorted(folder.glob("*.safetensors"))):
        try:
            if file.suffix == ".safetensors":
                content, _ = read_header(file)
            else:
                content = file.read_bytes()
        except OSError as error:
            raise ModelFolderError(f"{file} cannot be read: {error}") from error
        digest.update(f"{file.name} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def _what_it_does(tokenizer: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of tokenizer.json that make ids of a text.

    Truncation and padding are what a program sets. Newer versions of the library write merges as
    pairs, older ones as texts with a blank. Flags of the model that are off may be left out.
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


def _is_named_template(one: object) -> bool:
    return (
        isinstance(one, dict)
        and isinstance(one.get("name"), str)
        and isinstance(one.get("template"), str)
    )


def _token_text(value: object) -> str | None:
    """Text of a token that a file writes as a text or as an object."""
    text = value.get("content") if isinstance(value, dict) else value
    return text if isinstance(text, str) else None


def _json_if_there(file: Path) -> dict[str, Any]:
    return read_json(file) if file.is_file() else {}
