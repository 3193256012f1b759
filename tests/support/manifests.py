"""The manifests of deploy/kubernetes as the objects that they are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parents[2] / "deploy" / "kubernetes"

Manifest = dict[str, Any]


def kustomization() -> Manifest:
    """Not an object of the cluster: what kustomize reads."""
    found: Manifest = yaml.safe_load((FOLDER / "kustomization.yaml").read_text(encoding="utf-8"))
    return found


def manifests() -> list[Manifest]:
    """All objects, file by file."""
    return [one for name in kustomization()["resources"] for one in _objects(FOLDER / name)]


def manifest(kind: str, name: str) -> Manifest:
    (found,) = (
        one for one in manifests() if (one["kind"], one["metadata"]["name"]) == (kind, name)
    )
    return found


def _objects(file: Path) -> Iterator[Manifest]:
    yield from yaml.safe_load_all(file.read_text(encoding="utf-8"))
