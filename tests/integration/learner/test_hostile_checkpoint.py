"""A checkpoint from a stranger runs no code: each of its pickles, with each way to name a call."""

from __future__ import annotations

import io
import os
import pickle
import shutil
from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.metadata import _MEM_FORMAT_ENCODING

from learner.config.weights import Optimizer
from learner.errors import CheckpointError
from learner.intake.ledger import Ledger
from learner.model.policy import Policy, load_policy
from learner.saving.checkpoint import Checkpoints
from learner.saving.safe_load import COMMON, METADATA, read_metadata

pytestmark = pytest.mark.quick
Attack = Callable[[Path, Path], None]


class Calls:
    """Unpickled as a call of `function`."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self._call = (function, arguments)

    def __reduce__(self) -> Any:
        return self._call


def metadata_of(folder: Path) -> Any:
    return pickle.loads((folder / METADATA).read_bytes())


def write(folder: Path, found: Any) -> None:
    (folder / METADATA).write_bytes(pickle.dumps(found))


def alone(folder: Path, proof: Path) -> None:
    write(folder, Calls(os.mkdir, str(proof)))


def beside_what_is_right(folder: Path, proof: Path) -> None:
    found = metadata_of(folder)
    found.planner_data = Calls(os.mkdir, str(proof))
    write(folder, found)


def text_as_code(folder: Path, proof: Path) -> None:
    write(folder, Calls(eval, f"__import__('os').mkdir({str(proof)!r})"))


def a_dotted_name_below_an_allowed_module(folder: Path, proof: Path) -> None:
    path = str(proof).encode()
    code = b"\x80\x04\x8c\x13torch.serialization\x8c\x08os.mkdir\x93"
    (folder / METADATA).write_bytes(
        code + b"X" + len(path).to_bytes(4, "little") + path + b"\x85R."
    )


def a_way_from_an_allowed_name(folder: Path, proof: Path) -> None:
    write(folder, Calls(getattr, torch.Size, "__class__"))


def a_way_from_an_allowed_enum(folder: Path, proof: Path) -> None:
    write(folder, Calls(getattr, _MEM_FORMAT_ENCODING, "__class__"))


def between_the_tensors(folder: Path, proof: Path) -> None:
    """An object of the format, `_extra_state`, that lies in a data file."""
    found = metadata_of(folder)
    packed = io.BytesIO()
    torch.save([Calls(os.mkdir, str(proof))], packed)
    (folder / "evil.distcp").write_bytes(packed.getvalue())
    for index, info in found.storage_data.items():
        if "_extra_state" in index.fqn:
            found.storage_data[index] = replace(
                info, relative_path="evil.distcp", offset=0, length=len(packed.getvalue())
            )
    write(folder, found)


def in_the_common_part(folder: Path, proof: Path) -> None:
    torch.save({"args": Calls(os.mkdir, str(proof))}, folder / COMMON)


def a_file_of_another_folder(folder: Path, proof: Path) -> None:
    found = metadata_of(folder)
    first = next(iter(found.storage_data))
    found.storage_data[first] = replace(found.storage_data[first], relative_path="../state.json")
    write(folder, found)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A policy's folder, and one for a checkpoint of it."""
    from tests.integration.learner.models import write_model

    base = tmp_path_factory.mktemp("hostile")
    return write_model(base / "model"), base / "checkpoints"


@pytest.fixture
def policy(saved: tuple[Path, Path], one_rank: None) -> Policy:
    policy = load_policy(saved[0], Optimizer(lr=1e-2), "float32")
    if not saved[1].is_dir():
        Checkpoints(saved[1], kept=2).save(policy, 1, "a", {}, Ledger())
    return policy


@pytest.mark.parametrize(
    ("attack", "sentence"),
    [
        (alone, "names posix.mkdir, which no checkpoint needs and which could run code"),
        (beside_what_is_right, "names posix.mkdir"),
        (text_as_code, "names builtins.eval"),
        (a_dotted_name_below_an_allowed_module, "names torch.serialization.os.mkdir"),
        (a_way_from_an_allowed_name, "names builtins.getattr"),
        (a_way_from_an_allowed_enum, "names builtins.getattr"),
        (between_the_tensors, "_extra_state/shard_0_2 holds more than tensors and plain values"),
        (in_the_common_part, "common.pt holds more than tensors and plain values"),
        (a_file_of_another_folder, r"names the file '\.\./state\.json'"),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_a_strangers_checkpoint_runs_no_code(
    saved: tuple[Path, Path],
    policy: Policy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    attack: Attack,
    sentence: str,
) -> None:
    # With this variable torch.load runs whatever a pickle says, unless its caller forbids it.
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    (whole,) = saved[1].glob("step-*")
    path, proof = tmp_path / whole.name, tmp_path / "proof"
    shutil.copytree(whole, path)
    attack(path / "model", proof)
    with pytest.raises(CheckpointError, match=sentence):
        Checkpoints(tmp_path, kept=2).load(policy, path)
    assert not proof.exists()


@pytest.mark.parametrize("data", [b"", b"\x80", b"not a pickle", pickle.dumps(7), b"\x80\x04}."])
def test_damaged_metadata_is_named(tmp_path: Path, data: bytes) -> None:
    (tmp_path / METADATA).write_bytes(data)
    with pytest.raises(CheckpointError, match="is not torch's metadata"):
        read_metadata(tmp_path)


def test_what_toolwright_wrote_is_read_as_torch_reads_it(
    saved: tuple[Path, Path], policy: Policy
) -> None:
    (whole,) = saved[1].glob("step-*")
    assert read_metadata(whole / "model") == metadata_of(whole / "model")
    Checkpoints(saved[1], kept=2).load(policy, whole)


def test_a_checkpoint_of_the_first_pythons_3_11_is_read(
    saved: tuple[Path, Path], policy: Policy, tmp_path: Path
) -> None:
    """Debian 12 has 3.11.2: before 3.11.4 a member of an enum is written by its name."""
    (whole,) = saved[1].glob("step-*")
    found, packed = metadata_of(whole / "model"), io.BytesIO()
    ByName(packed).dump(found)
    assert b"getattr" in packed.getvalue()
    (tmp_path / METADATA).write_bytes(packed.getvalue())
    assert read_metadata(tmp_path) == found


class ByName(pickle.Pickler):
    """Writes enums as Python 3.11.2 does."""

    def reducer_override(self, written: Any) -> Any:
        if isinstance(written, Enum):
            return getattr, (type(written), written.name)
        return NotImplemented
