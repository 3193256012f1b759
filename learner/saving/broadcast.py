"""New weights to the samplers by a process group, from memory to memory; their folder follows.

Invariants
- The weights are exported once, by all ranks. Rank 0 keeps a copy in the host's memory, of which
  further tries and the folder are made: a failure calls no other rank.
- At most a bucket and a tensor of exported weights lie on the first rank's device.
- When `publish` returns the samplers serve the version, whatever failed on the way; else it raises
  what a publish by folder raises.
- A folder is written while the run goes on. The next publish waits for it, and so does the run's
  end.

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
from learner.model.bridge import Saved, named_weights, write_folder
from learner.model.policy import Policy
from learner.ranks import parallel
from learner.saving.attempt import Attempt, Spent
from learner.saving.behind import FolderBehind
from learner.saving.buckets import Named, buckets
from learner.saving.publish import Published, folder_of, forget_old
from toolwright.types import WeightVersion

MIB = 1 << 20
TRIES = 3
"""By the group, with the servers that are left each time; then comes the folder. After a publish
that went by its folder the next one tries once."""


class ByGroup:
    """The publishes of one run by the group.

    root: where published folders lie. kept: how many stay. client: rank 0's, None elsewhere.
    behind: writes rank 0's folders.
    """

    def __init__(
        self,
        settings: Publish,
        root: Path,
        *,
        kept: int,
        say: Callable[[str], None],
        client: EngineClient | None,
        behind: FolderBehind,
    ) -> None:
        self._settings = settings
        self._root = root
        self._kept = kept
        self._say = say
        self._client = client
        self._behind = behind
        self._newest: Path | None = None
        self._tries = TRIES
        self._folder_s = 0.0
        self._waited_s = 0.0

    def settle(self) -> None:
        """Waits for the folder of the publish before. Raises what went wrong with it, as a publish
        by folder does."""
        began = time.monotonic()
        took = self._behind.settle(parallel.still_waiting)
        self._waited_s += time.monotonic() - began
        if took is not None and self._newest is not None:
            self._folder_s = took
            # Not by the thread that wrote it: what reads folders meanwhile finds them all.
            forget_old(self._root, self._newest, self._kept)
        parallel.from_first(took)

    def publish(self, policy: Policy, version: WeightVersion) -> Published:
        """Has the samplers serve the policy as `version`, a later step of what they serve."""
        self.settle()
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
        behind = {"folder_s": self._folder_s, "folder_wait_s": self._waited_s}
        self._folder_s = self._waited_s = 0.0
        spent = Spent()
        copies: dict[str, torch.Tensor] = {}
        failed = self._try(client, version, weights, partial(_keep, copies), spent)
        export_s = time.monotonic() - began - spent.publish_s
        while failed is not None and spent.tries < self._tries:
            failed = self._try(client, version, copies.items(), _keep_others_waiting, spent)
        self._tries = TRIES if failed is None else 1
        with lora.hidden(policy.bare) as adapters:
            saved = Saved(
                weights=copies,
                adapters=adapters.saved() if adapters is not None else None,
                source=policy.source,
                dtype=policy.bridge.dtype,
            )
        folder = folder_of(self._root, version)
        if failed is None:
            self._behind.begin(
                partial(write_folder, saved, folder),
                partial(client.publish, version, None, str(folder)),
            )
        else:
            self._say(
                f"{version} did not reach the samplers by the group ({failed}): it goes to them by "
                "its folder"
            )
            writing = time.monotonic()
            write_folder(saved, folder)
            export_s += time.monotonic() - writing
            spent.paused_s = client.publish(version, None, str(folder))
            forget_old(self._root, folder, self._kept)
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
                **behind,
            },
        )

    def _try(
        self,
        client: EngineClient,
        version: WeightVersion,
        weights: Iterable[Named],
        meanwhile: Callable[[Sequence[Named]], None],
        spent: Spent,
    ) -> GroupError | None:
        """Draws all weights in any case. Why the samplers do not have them, None where they do."""
        with Attempt(client, version, self._settings, spent) as attempt:
            for bucket in buckets(weights, self._settings.bucket_mib * MIB):
                attempt.send(bucket, partial(meanwhile, bucket))
            attempt.commit()
        return attempt.failed


def _keep(copies: dict[str, torch.Tensor], bucket: Sequence[Named]) -> None:
    for name, tensor in bucket:
        copies[name] = tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)


def _keep_others_waiting(_bucket: Sequence[Named]) -> None:
    """The other ranks have exported all, and wait for what comes of it."""
    parallel.still_waiting()
