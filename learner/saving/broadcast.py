"""New weights to the samplers by a process group, from memory to memory; their folder follows.

Invariants
- All ranks export the weights once. Rank 0 keeps a copy in host memory for further attempts and for
  the folder, so a failure involves no other rank.
- The first rank's device holds at most one bucket and one tensor of exported weights.
- When `publish` returns, the samplers serve the version, whatever failed before. Otherwise it
  raises the error of a publish by folder.
- A folder is written while the run continues. The next publish and the end of the run wait for it.

All ranks call; only rank 0 has a client.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import torch

from learner.config.weights import Publish
from learner.errors import GroupError
from learner.intake.client import EngineClient
from learner.model import lora
from learner.model.bridge import PolicyFiles, named_weights, write_folder
from learner.model.policy import Policy
from learner.ranks import parallel
from learner.saving.attempt import Attempt, PublishTotals
from learner.saving.buckets import Named, buckets
from learner.saving.folder_writer import FolderWriter
from learner.saving.publish import Published, delete_old, folder_of
from toolwright.types import WeightVersion

MIB = 1 << 20
TRIES = 3
"""Attempts by the group, each with the servers that are left; then the folder is published. After a
publish by folder the next publish makes one attempt."""


class BroadcastPublisher:
    """Publishes the versions of one run by the group.

    root: folder of the published folders. kept: number of folders that stay. client: rank 0's, None
    elsewhere. folders: writes rank 0's folders.
    """

    def __init__(
        self,
        settings: Publish,
        root: Path,
        *,
        kept: int,
        say: Callable[[str], None],
        client: EngineClient | None,
        folders: FolderWriter,
    ) -> None:
        self._settings = settings
        self._root = root
        self._kept = kept
        self._say = say
        self._client = client
        self._folders = folders
        self._newest: Path | None = None
        self._tries = TRIES
        self._folder_s = 0.0
        self._waited_s = 0.0

    def settle(self) -> None:
        """Waits for the folder of the last publish. Raises its error, like a publish by folder."""
        began = time.monotonic()
        took = self._folders.settle(parallel.still_waiting)
        self._waited_s += time.monotonic() - began
        if took is not None and self._newest is not None:
            self._folder_s = took
            # Not in the thread that wrote it: readers of folders find all of them until here.
            delete_old(self._root, self._newest, self._kept)
        parallel.from_first(took)

    def publish(self, policy: Policy, version: WeightVersion) -> Published:
        """Has the samplers serve the policy as `version`, a later step of their version."""
        self.settle()
        policy.gather()
        published: Published | None = None
        with torch.no_grad():  # mbridge broadcasts the very parameters
            weights = named_weights(policy.bridge, policy.bare)
            if self._client is None:
                for _ in weights:
                    pass
            else:
                published = self._published(self._client, policy, version, weights)
        return parallel.from_first(published)

    def _published(
        self,
        client: EngineClient,
        policy: Policy,
        version: WeightVersion,
        weights: Iterable[Named],
    ) -> Published:
        began = time.monotonic()
        before = {"folder_s": self._folder_s, "folder_wait_s": self._waited_s}
        self._folder_s = self._waited_s = 0.0
        spent = PublishTotals()
        copies: dict[str, torch.Tensor] = {}
        failed = self._try(client, version, weights, partial(_keep, copies), spent)
        export_s = time.monotonic() - began - spent.publish_s
        while failed is not None and spent.tries < self._tries:
            failed = self._try(client, version, copies.items(), _keep_others_waiting, spent)
        self._tries = TRIES if failed is None else 1
        with lora.detached_adapters(policy.bare) as adapters:
            saved = PolicyFiles(
                weights=copies,
                adapters=adapters.saved() if adapters is not None else None,
                source=policy.source,
                dtype=policy.bridge.dtype,
            )
        folder = folder_of(self._root, version)
        if failed is None:
            self._folders.begin(
                partial(write_folder, saved, folder),
                partial(client.publish, version, None, str(folder)),
            )
        else:
            self._say(
                f"{version} did not reach the samplers by the group ({failed}): publishing its "
                "folder"
            )
            writing = time.monotonic()
            write_folder(saved, folder)
            export_s += time.monotonic() - writing
            spent.paused_s = client.publish(version, None, str(folder))
            delete_old(self._root, folder, self._kept)
        self._newest = folder
        return Published(
            folder=folder,
            export_s=export_s,
            publish_s=time.monotonic() - began - export_s,
            paused_s=spent.paused_s,
            more={
                "group_tries": spent.tries,
                "broadcast_s": spent.broadcast_s,
                "broadcast_bytes": spent.bytes,
                **before,
            },
        )

    def _try(
        self,
        client: EngineClient,
        version: WeightVersion,
        weights: Iterable[Named],
        meanwhile: Callable[[Sequence[Named]], None],
        spent: PublishTotals,
    ) -> GroupError | None:
        """None if the samplers have the version, else the error. Consumes all weights either
        way."""
        with Attempt(client, version, self._settings, spent) as attempt:
            for bucket in buckets(weights, self._settings.bucket_mib * MIB):
                attempt.send(bucket, partial(meanwhile, bucket))
            attempt.commit()
        return attempt.failed


def _keep(copies: dict[str, torch.Tensor], bucket: Sequence[Named]) -> None:
    for name, tensor in bucket:
        copies[name] = tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)


def _keep_others_waiting(_bucket: Sequence[Named]) -> None:
    """The other ranks have exported all weights and wait for the result."""
    parallel.still_waiting()
