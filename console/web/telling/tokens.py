"""How a run's policy spells its token ids: a text for the whole, a piece for each token.

A tokenizer is taken where its hash is the record's, in the folders that a run has or names. Where
none fits, nothing is decoded: another tokenizer would make a text that the policy did not write.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from console.record.resolved import Resolved, read_resolved
from toolwright.model.model_folder import ModelFolderError, tokenizer_hash

MOST_FOLDERS = 64
NAMED = ("policy.model", "sft.model", "render.model")
"""Keys of the recipe that name a folder with a tokenizer."""


class Spelling:
    """One tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def text(self, ids: Sequence[int]) -> str:
        """Control tokens as they are spelled. "" for ids that the tokenizer does not know."""
        try:
            return str(self._tokenizer.decode(list(ids), skip_special_tokens=False))
        except (OverflowError, TypeError):  # below 0
            return ""

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """A text for each id, together that of `text`. A token that ends amid a character is empty,
        and the one that ends the character has it."""
        whole, stream = self.text(ids), DecodeStream(skip_special_tokens=False)
        found: list[str] = []
        for number in ids:
            try:
                found.append(stream.step(self._tokenizer, number) or "")
            except Exception:  # noqa: BLE001  tokenizers raises nothing more special
                found.append("")
        joined = "".join(found)
        if found and joined != whole:
            kept = whole.startswith(joined)
            found = (
                [*found[:-1], found[-1] + whole[len(joined) :]] if kept else _alone(whole, found)
            )
        return found


class Spellings:
    """Spellings of one run, by the hash that its records carry."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[str, Spelling | None] = {}

    def of(self, digest: str) -> Spelling | None:
        """None where no folder at hand has this tokenizer; looked for again with each new one."""
        if digest not in self._known:
            found = self._find(digest) if digest else None
            if found is None:
                return None
            self._known[digest] = found
        return self._known[digest]

    def decoder(self, digest: str) -> Callable[[bytes], str]:
        """Text of packed token ids; "" where the tokenizer is not at hand."""
        spelling = self.of(digest)
        if spelling is None:
            return lambda _packed: ""
        return lambda packed: spelling.text(unpacked(packed))

    def _find(self, digest: str) -> Spelling | None:
        template = read_resolved(self._folder).get("policy.template")
        variables = template if isinstance(template, dict) else None
        for folder in islice(_folders(self._folder), MOST_FOLDERS):
            try:
                if tokenizer_hash(folder, variables) == digest:
                    return Spelling(Tokenizer.from_file(str(folder / "tokenizer.json")))
            except ModelFolderError:
                continue
            except Exception:  # noqa: BLE001  tokenizers raises nothing more special
                continue
        return None


def unpacked(packed: bytes) -> array[int]:
    """Little-endian int32 ids; bytes beyond the last whole one are left out."""
    ids = array("i")
    ids.frombytes(packed[: len(packed) // 4 * 4])
    return ids


def _alone(whole: str, found: Sequence[str]) -> list[str]:
    """Where pieces and text disagree the text is right, and stands at the first token."""
    return [whole, *("" for _ in found[1:])]


def _folders(run: Path) -> Iterator[Path]:
    """Folders that may hold the run's tokenizer, the likeliest first."""
    yield run / "final"
    yield from sorted(run.glob("policy/*"), reverse=True)
    yield from (run / name for name in ("warm", "sft/final", "untrained"))
    resolved: Resolved = read_resolved(run)
    recipe = Path(resolved.recipe).parent
    for key in NAMED:
        if named := resolved.text(key):
            yield recipe / named
