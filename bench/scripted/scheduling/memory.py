"""Memory of the scripted server's GPU: released and resumed by tags, as by the real server.

The real scheduler dies of a call that comes at the wrong time, and so does this one: it keeps the
reason, and the server resets every connection from then on. Three errors are fatal: a release
while a reply holds cache, a resume of a tag that is not released, and new weights or a token
without their memory. Released weights are lost: the server must load others before it samples.
"""

from __future__ import annotations

from collections.abc import Sequence

WEIGHTS = "weights"
TAGS = ("kv_cache", WEIGHTS, "cuda_graph")


class GpuMemory:
    """The released memory of one server."""

    def __init__(self) -> None:
        self.released: set[str] = set()
        self.died = ""
        """Reason of the scheduler's death; empty while it lives."""
        self.cycles = 0
        """Number of releases so far."""
        self._lost_weights = False

    def release(self, tags: Sequence[str], *, idle: bool) -> None:
        """idle: no reply holds cache."""
        if not idle:
            self.die("release_memory_occupation should be called only when server is idle.")
            return
        self.released.update(tags or TAGS)
        self._lost_weights |= WEIGHTS in self.released
        self.cycles += 1

    def resume(self, tags: Sequence[str]) -> None:
        for tag in tags or TAGS:
            if tag not in self.released:
                self.die(f"KeyError: {tag!r}")
                return
            self.released.remove(tag)

    def load(self) -> None:
        """New weights arrive."""
        if WEIGHTS in self.released:
            self.die("weights were written to released memory")
        self._lost_weights = False

    def sample(self) -> None:
        """A reply is about to grow."""
        if self.released or self._lost_weights:
            lost = ", ".join(sorted(self.released)) or "the weights that were released"
            self.die(f"a token was sampled without {lost}")

    def die(self, why: str) -> None:
        self.died = self.died or why
