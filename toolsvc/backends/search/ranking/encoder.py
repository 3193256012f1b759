"""Text to vectors, by a sentence-transformers folder on disk.

The package, which brings torch, is imported when an encoder is made and not before. Nothing is
ever downloaded.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from toolsvc.backends.search.errors import IndexFault
from toolsvc.backends.search.manifest import EncoderFacts, encoder_fingerprint
from toolsvc.backends.search.types import Vectors

BATCH = 64


def describe(
    folder: Path, *, query_prefix: str | None = None, passage_prefix: str | None = None
) -> EncoderFacts:
    """The encoder with its prefixes. Raises IndexFault if the folder holds no encoder.

    A prefix of None is the one that the encoder was trained with. E5 (Wang et al. 2022, arXiv
    2212.03533) marks queries and passages; it is known by the name of its folder, as Search-R1
    knows it.
    """
    folder = folder.resolve()
    e5 = "e5" in folder.name.lower()
    return EncoderFacts(
        path=folder,
        fingerprint=encoder_fingerprint(folder),
        query_prefix=("query: " if e5 else "") if query_prefix is None else query_prefix,
        passage_prefix=("passage: " if e5 else "") if passage_prefix is None else passage_prefix,
    )


class Encoder:
    """Mean pooling, or whatever the folder's own configuration says; vectors of length 1."""

    def __init__(self, facts: EncoderFacts, folder: Path | None = None) -> None:
        """`folder`: where the encoder is now, if it was moved."""
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        try:
            package: Any = import_module("sentence_transformers")
            # Its bar would stand among ours, and in the logs of the service.
            import_module("transformers.utils.logging").disable_progress_bar()
        except ImportError as error:
            raise IndexFault(
                "an encoder needs the package sentence-transformers: pip install "
                "'toolwright[encoder]'"
            ) from error
        try:
            self._model = package.SentenceTransformer(
                str(folder or facts.path), trust_remote_code=False
            )
        except (OSError, ValueError) as error:
            raise IndexFault(
                f"{folder or facts.path} cannot be loaded as an encoder: {error}"
            ) from error
        self._facts = facts

    def queries(self, texts: Sequence[str]) -> Vectors:
        """[texts, dimensions]."""
        return self._encode([self._facts.query_prefix + text for text in texts])

    def passages(self, texts: Sequence[str]) -> Vectors:
        """[texts, dimensions]."""
        return self._encode([self._facts.passage_prefix + text for text in texts])

    def _encode(self, texts: list[str]) -> Vectors:
        vectors: Vectors = self._model.encode(
            texts, batch_size=BATCH, normalize_embeddings=True, show_progress_bar=False
        )
        return vectors
