"""Media of tasks, sent before the sessions that need them.

Invariants
- A blob is named by the SHA-256 of its bytes; they are checked before any session gets them, and
  held once.
- Held blobs and received pieces together never exceed `room`. An upload takes the bytes received so
  far, not its declared size, so a client cannot reserve room without sending. If room is short,
  unclaimed blobs go, the one that was sent longest ago first.
- A claimed blob stays until its session ends. An unclaimed blob stays for `UNCLAIMED_SECONDS` after
  it was last sent. Sending a blob that another session holds renews that time too.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType

from toolsvc.errors import RETRY_SECONDS, Reason, Refused
from toolsvc.types import Media
from toolwright.rpc.options import PIECE_BYTES
from toolwright.types import BlobRef

BLOB_BYTES = 64 << 20
DEFAULT_ROOM = 1 << 30
LEAST_BYTES = 4 << 10
"""What a blob takes of the room however small it is, so that their number is bounded too."""
UNCLAIMED_SECONDS = 600.0

_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(slots=True)
class _Blob:
    data: bytes
    until: float
    """When it goes if no session claims it."""
    sessions: set[str] = field(default_factory=set)


class TaskBlobs:
    """All blobs of tasks that one host holds."""

    def __init__(
        self, room: int = DEFAULT_ROOM, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`room`: bytes of all of them together. `clock`: seconds."""
        self._room = room
        self._clock = clock
        self._blobs: dict[str, _Blob] = {}  # in the order of their last sending
        self._of: dict[str, tuple[str, ...]] = {}
        self.used = 0
        """Bytes of the room that are taken, by blobs that are here or have come in so far."""

    def get(self, sha256: str) -> bytes | None:
        blob = self._blobs.get(sha256)
        return None if blob is None else blob.data

    def take_in(self, blob: BlobRef) -> Upload:
        """A blob that is about to come in pieces. Raises Refused for a name that is no hash, a blob
        that is too large, or where the sessions' blobs leave no room for it."""
        _check_name(blob.sha256)
        largest = min(BLOB_BYTES, self._room)
        if blob.size > largest:
            raise _invalid(
                "size",
                f"blob {blob.sha256} has {blob.size} bytes; the limit is {largest}",
                fix="send smaller media",
            )
        self._room_for(blob, _taken(blob.size))
        return Upload(self, blob)

    def claim(self, session_id: str, wanted: Sequence[BlobRef]) -> Mapping[str, Media]:
        """Holds blobs for a session until `forget`; by their hash, in the order of asking. Raises
        Refused if one is not here, or has another size; then none is held."""
        total = sum(_taken(ref.size) for ref in {ref.sha256: ref for ref in wanted}.values())
        if total > self._room:
            raise _invalid(
                "blobs",
                f"the blobs of session {session_id} take {total} bytes, more than the {self._room} "
                "that this service has for all",
                fix="raise --blobs-mib, or name fewer",
            )
        found: dict[str, Media] = {}
        for ref in wanted:
            _check_name(ref.sha256)
            data = self.get(ref.sha256)
            if data is None:
                raise Refused(
                    Reason.BLOB_NOT_FOUND,
                    f"session {session_id} needs blob {ref.sha256}, which is not here",
                    subject=ref.sha256,
                    fix="send it by PutBlob, then open the session again",
                )
            if ref.size != len(data):
                raise _invalid(
                    "size", f"blob {ref.sha256} has {len(data)} bytes, not {ref.size} as it says"
                )
            found[ref.sha256] = Media(media_type=ref.media_type, data=data)
        if found:
            self._of[session_id] = tuple(found)
        for name in found:
            self._blobs[name].sessions.add(session_id)
        return found

    def forget(self, session_id: str) -> None:
        """The session has ended, or could not be opened."""
        for name in self._of.pop(session_id, ()):
            self._blobs[name].sessions.discard(session_id)
            self._expire(name)

    def expire(self) -> None:
        """Drops unclaimed blobs that have not been sent for a while."""
        for name in list(self._blobs):
            self._expire(name)

    def _expire(self, name: str) -> None:
        blob = self._blobs[name]
        if not blob.sessions and blob.until <= self._clock():
            self._drop(name)

    def _drop(self, name: str) -> None:
        self.used -= _taken(len(self._blobs.pop(name).data))

    def take(self, blob: BlobRef, size: int) -> None:
        """So many bytes more of a blob that is coming in. Raises Refused if there is no room."""
        unclaimed = self._room_for(blob, size)
        while self.used + size > self._room:
            self._drop(unclaimed.pop(0))
        self.used += size

    def _room_for(self, blob: BlobRef, size: int) -> list[str]:
        """Names of what may go, the first first. Raises Refused if that would not be enough."""
        if self.used + size <= self._room:
            return []
        unclaimed = [name for name, held in self._blobs.items() if not held.sessions]
        can_go = sum(_taken(len(self._blobs[name].data)) for name in unclaimed)
        if self.used - can_go + size > self._room:
            raise Refused(
                Reason.TOO_MANY_SESSIONS,
                f"no room for the {blob.size} bytes of blob {blob.sha256}: open sessions hold most "
                f"of the {self._room} that this service has for blobs",
                subject=blob.sha256,
                retry_after=RETRY_SECONDS,
                fix="close sessions, or raise --blobs-mib",
            )
        return unclaimed

    def _keep(self, blob: BlobRef, data: bytes) -> None:
        held = self._blobs.pop(blob.sha256, None)
        if held is None:
            held = _Blob(data, 0.0)
            self.used += _taken(len(data))
        held.until = self._clock() + UNCLAIMED_SECONDS
        self._blobs[blob.sha256] = held


class Upload:
    """One blob on its way in. A context manager: nothing is left of one that was not finished."""

    def __init__(self, blobs: TaskBlobs, blob: BlobRef) -> None:
        self._blobs = blobs
        self._blob = blob
        self._pieces: list[bytes] = []
        self._missing = blob.size
        self._taken = 0
        self._hash = hashlib.sha256()

    def __enter__(self) -> Upload:
        self._take(LEAST_BYTES)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._blobs.used -= self._taken

    def _take(self, size: int) -> None:
        """So many bytes of the room in all, as long as it is open."""
        more = size - self._taken
        if more > 0:
            self._blobs.take(self._blob, more)
            self._taken = size

    async def add(self, data: bytes) -> None:
        """The next piece. Raises Refused if it is too large, or more than the blob has."""
        if len(data) > PIECE_BYTES:
            raise _invalid(
                "data",
                f"a piece of blob {self._blob.sha256} has {len(data)} bytes",
                fix=f"send pieces of at most {PIECE_BYTES} bytes",
            )
        self._missing -= len(data)
        if self._missing < 0:
            raise _invalid(
                "size",
                f"blob {self._blob.sha256} has more than the {self._blob.size} bytes it says",
            )
        self._take(self._blob.size - self._missing)
        self._pieces.append(data)
        # In a thread: a hash of so many bytes would hold up every other call.
        await asyncio.to_thread(self._hash.update, data)

    async def finish(self) -> BlobRef:
        """Keeps the blob. Raises Refused if bytes are missing or have another hash."""
        if self._missing:
            raise _invalid(
                "size",
                f"blob {self._blob.sha256} misses {self._missing} of its {self._blob.size} bytes",
            )
        if self._hash.hexdigest() != self._blob.sha256:
            raise _invalid("sha256", f"the bytes of blob {self._blob.sha256} have another hash")
        self._blobs._keep(self._blob, await asyncio.to_thread(b"".join, self._pieces))
        return self._blob


def _taken(size: int) -> int:
    return max(size, LEAST_BYTES)


def _check_name(sha256: str) -> None:
    if not _SHA256.fullmatch(sha256):
        raise _invalid(
            "sha256", f"{sha256[:80]!r} is no SHA-256", fix="write it as 64 lower-case hex digits"
        )


def _invalid(subject: str, message: str, fix: str = "") -> Refused:
    return Refused(Reason.INVALID_REQUEST, message, subject=subject, fix=fix)
