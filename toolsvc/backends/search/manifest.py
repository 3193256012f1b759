"""What an index was made from. It is written before the work as `plan.json`, and takes the name
`manifest.json` when all of the work is on disk: a folder with a manifest is complete.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from toolsvc.backends.search.errors import IndexFault
from toolsvc.backends.search.files import fingerprint, folder_fingerprint, write_whole
from toolsvc.backends.search.ranking.words import VERSION as WORDS

MANIFEST = "manifest.json"
PLAN = "plan.json"
FORMAT = 1
_ENCODER_FILES = (".json", ".txt", ".safetensors", ".bin")
_STRICT = ConfigDict(extra="forbid", frozen=True)


class IndexKind(StrEnum):
    """What an index may hold."""

    BM25 = "bm25"
    FLAT = "flat"
    HNSW = "hnsw"
    IVF = "ivf"
    HYBRID = "hybrid"
    """BM25 and one of the three others."""


class Dense(StrEnum):
    """How the vectors are searched."""

    FLAT = "flat"
    """All of them are compared: exact, time grows with the corpus."""
    HNSW = "hnsw"
    """A graph of neighbours is walked; slow to build."""
    IVF = "ivf"
    """Only the clusters nearest to the query are compared."""


class CorpusFacts(BaseModel):
    """`path` as it was given, made absolute; `fingerprint` by `files.fingerprint`."""

    model_config = _STRICT
    path: Path
    passages: int
    fingerprint: str


class Bm25Facts(BaseModel):
    """Okapi BM25 as Lucene counts it; k1 and b are Lucene's."""

    model_config = _STRICT
    k1: float = 1.2
    b: float = 0.75
    method: str = "lucene"
    stemmer: str = "english"
    stopwords: str = "en"
    words: int = WORDS
    """Version of `ranking.words`, which split the passages."""


class EncoderFacts(BaseModel):
    """A sentence-transformers folder, and what it wants before queries and passages."""

    model_config = _STRICT
    path: Path
    fingerprint: str
    query_prefix: str = ""
    passage_prefix: str = ""


class DenseFacts(BaseModel):
    """Where the vectors came from: `encoder`, or a file of vectors or a FAISS index by fingerprint.
    A FAISS index may have an encoder too, which then makes the vectors of queries alone."""

    model_config = _STRICT
    kind: Dense
    encoder: EncoderFacts | None = None
    vectors_fingerprint: str = ""
    faiss_fingerprint: str = ""
    """Fingerprint of an index that another program made."""


class Manifest(BaseModel):
    """All that the index depends on."""

    model_config = _STRICT
    format: int = FORMAT
    corpus: CorpusFacts
    bm25: Bm25Facts | None = None
    dense: DenseFacts | None = None

    @property
    def kind(self) -> IndexKind:
        """What the index holds."""
        if self.dense is None:
            return IndexKind.BM25
        return IndexKind(self.dense.kind) if self.bm25 is None else IndexKind.HYBRID

    def with_words(self, version: int) -> Manifest:
        """The same, its passages split by that version of `ranking.words`."""
        if self.bm25 is None:
            return self
        return self.model_copy(update={"bm25": self.bm25.model_copy(update={"words": version})})

    def write(self, path: Path) -> None:
        write_whole(path, lambda file: file.write(self.model_dump_json(indent=1).encode()))


def read(path: Path) -> Manifest:
    """IndexFault where it is not there or of another format."""
    try:
        manifest = Manifest.model_validate_json(path.read_bytes())
    except OSError as error:
        raise IndexFault(
            f"{path.parent} holds no finished index: make one, or finish it, with `toolsvc index "
            f"build CORPUS --output {path.parent}`"
        ) from error
    except ValidationError as error:
        raise _other_format(path) from error
    if manifest.format != FORMAT:
        raise _other_format(path)
    if manifest.bm25 is not None and "words" not in manifest.bm25.model_fields_set:
        return manifest.with_words(1)
    return manifest


def check_words(facts: Bm25Facts, folder: Path, corpus: Path) -> None:
    """IndexFault unless the index in `folder` splits text into words as this version does."""
    if facts.words != WORDS:
        raise IndexFault(
            f"index {folder} was built with version {facts.words} of the splitting into words, "
            f"this is version {WORDS}: `toolsvc index build {corpus} --output {folder}`, with the "
            "options that it was built with, makes its BM25 part again and keeps its vectors"
        )


def check_corpus(manifest: Manifest, folder: Path, corpus: Path) -> None:
    """IndexFault unless `corpus` is what the index in `folder` was made from."""
    try:
        found = fingerprint(corpus)
    except OSError as error:
        raise IndexFault(
            f"the corpus of index {folder} is not at {corpus} ({error.strerror or error}): say "
            "where it is with --set search.corpus=FILE"
        ) from error
    if found != manifest.corpus.fingerprint:
        raise IndexFault(
            f"corpus {corpus} is not what index {folder} was made from: name the right one with "
            f"--set search.corpus=FILE, or build an index of it with `toolsvc index build "
            f"{corpus}` and a new --output"
        )


def check_faiss(facts: DenseFacts, path: Path) -> None:
    """Raises IndexFault unless `path` is the adopted FAISS index as it was adopted."""
    if facts.faiss_fingerprint and fingerprint(path) != facts.faiss_fingerprint:
        raise IndexFault(
            f"{path} was changed after it was adopted: delete {path.parent} and adopt it again "
            "with `toolsvc index build --faiss`"
        )


def check_encoder(facts: EncoderFacts, folder: Path, encoder: Path) -> None:
    """IndexFault unless `encoder` is what made the vectors of the index in `folder`."""
    if encoder_fingerprint(encoder) != facts.fingerprint:
        raise IndexFault(
            f"encoder {encoder} is not the one that made the vectors of index {folder}: name that "
            "one with --set search.encoder=FOLDER, or build the index again with this one"
        )


def encoder_fingerprint(folder: Path) -> str:
    """Digest of configuration, vocabulary and weights. Raises IndexFault if there is no encoder."""
    if not (folder / "config.json").is_file():
        raise IndexFault(
            f"{folder} is no encoder (it has no config.json): name the folder of a "
            "sentence-transformers or Hugging Face model"
        )
    return folder_fingerprint(folder, _ENCODER_FILES)


def _other_format(path: Path) -> IndexFault:
    return IndexFault(
        f"{path} is not of format {FORMAT}, which this version reads: build the index again with "
        "`toolsvc index build`"
    )
