"""The manifests of deploy/kubernetes and deploy/launch/kubernetes as the objects that they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

_DEPLOY = Path(__file__).parents[2] / "deploy"
FOLDER = _DEPLOY / "kubernetes"
LAUNCH = _DEPLOY / "launch" / "kubernetes"

Manifest = dict[str, Any]


def kustomization(folder: Path = FOLDER) -> Manifest:
    """Not an object of the cluster: what kustomize reads."""
    found: Manifest = yaml.safe_load((folder / "kustomization.yaml").read_text(encoding="utf-8"))
    return found


def manifests(folder: Path = FOLDER) -> list[Manifest]:
    """All objects, file by file."""
    texts = [(folder / name).read_text("utf-8") for name in kustomization(folder)["resources"]]
    return [one for text in texts for one in yaml.safe_load_all(text)]


def manifest(kind: str, name: str, folder: Path = FOLDER) -> Manifest:
    named = [one for one in manifests(folder) if one["metadata"]["name"] == name]
    (found,) = [one for one in named if one["kind"] == kind]
    return found


def spec(one: Manifest) -> Manifest:
    """Of the pods that an object makes."""
    found: Manifest = one["spec"]["template"]["spec"]
    return found
