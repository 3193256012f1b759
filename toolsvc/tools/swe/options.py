"""Options of `swe`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Self

from pydantic import BaseModel, Field, model_validator

from toolsvc.plugin.tool import STRICT
from toolsvc.sandbox.config import MIB, SandboxConfig
from toolsvc.tools.swe.boxes.box import BoxLimits


class RunnerKind(StrEnum):
    """Where boxes are."""

    LOCAL = "local"
    """Sessions of the service's own sandbox."""
    DOCKER = "docker"
    PODMAN = "podman"
    KUBERNETES = "kubernetes"


class SweOptions(BaseModel):
    """Memory and processes of a box are those of the service: --memory-mib, --processes."""

    model_config = STRICT

    runner: RunnerKind = Field(
        default=RunnerKind.LOCAL, description="local (the sandbox), docker, podman or kubernetes"
    )
    repositories: Path | None = Field(
        default=None, description="folder of repositories, bundles and archives; or one of them"
    )
    verifications: Path | None = Field(
        default=None, description="folder of verifications; or one of them"
    )
    image: str = Field(default="", description="for tasks that name none")
    images: tuple[str, ...] = Field(
        default=(), description='images that tasks may name, such as ["r2e/*"]'
    )
    folder: str = Field(default="/testbed", description="of the repository in a container")
    setup: str = Field(
        default="", description="command that is run once in each box, before all other commands"
    )
    environment: tuple[str, ...] = Field(
        default=(),
        description="folders of virtual or conda environments; the first in a box is activated for "
        "the policy and for the tests",
    )
    denied: tuple[str, ...] = Field(
        default=(), description='programs that execute_bash refuses, such as ["git"]'
    )
    output_kib: int = Field(default=64, ge=1, description="kept output of one command")
    tree_mib: int = Field(default=128, ge=1, description="of a repository, without its history")
    starting: int = Field(default=16, ge=1, description="boxes being started at once")
    start_seconds: float = Field(default=300.0, gt=0, description="for one box to start")
    verifying: int = Field(default=8, ge=1, description="verifications at once")
    life_seconds: int = Field(
        default=7200, ge=60, description="after which a container ends by itself"
    )
    cpus: float = Field(default=2.0, gt=0, description="of a container, at most")
    requested_cpus: float = Field(default=1.0, gt=0, description="Kubernetes: kept free for a pod")
    requested_memory_mib: int = Field(
        default=2048, ge=1, description="Kubernetes: kept free for a pod, at most its limit"
    )
    namespace: str = Field(default="default", description="Kubernetes: of the pods")

    @model_validator(mode="after")
    def _an_image_for_containers(self) -> Self:
        if self.runner is RunnerKind.LOCAL:
            if self.image or self.images:
                raise ValueError("the local runner has no images: set swe.runner=docker")
            if self.repositories is None:
                raise ValueError("set swe.repositories=FOLDER")
        elif not (self.image or self.images or self.verifications):
            raise ValueError("set swe.image=IMAGE, swe.images, or swe.verifications that name one")
        return self

    def limits(self, sandbox: SandboxConfig) -> BoxLimits:
        """Limits of one box."""
        return BoxLimits(
            cpus=self.cpus,
            memory_bytes=sandbox.memory_bytes,
            processes=sandbox.processes,
            requested_cpus=min(self.requested_cpus, self.cpus),
            requested_memory_bytes=min(self.requested_memory_mib * MIB, sandbox.memory_bytes),
            life=self.life_seconds,
        )
