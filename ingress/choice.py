"""One completion of a call: its ids as they come, and what the client and the record get of it."""

from __future__ import annotations

from ingress.canon import Digests, call_id, reply_digests
from ingress.text.completion import Completion, message_of
from ingress.text.kept import written
from ingress.types import (
    Complete,
    End,
    IllFormed,
    Piece,
    ReadCall,
    Said,
    TokenLogprob,
    ToolCall,
    Words,
)
from toolwright.chat.tokenizer import ChatTokenizer
from toolwright.common.v1 import trajectory_pb2
from toolwright.ingress.v1 import ingress_pb2 as pb
from toolwright.wire import unpack


class Choice:
    """One completion while it arrives."""

    def __init__(
        self, number: int, completion: Completion, digests: Digests, tokenizer: ChatTokenizer
    ) -> None:
        self._number = number
        self._completion = completion
        self._digests = digests
        self._tokenizer = tokenizer
        self._ids: list[str] = []
        self._logprobs: list[TokenLogprob] = []
        self._end: End = "stop"
        self._stop = ""

    def take(self, event: pb.Delta | pb.Finished, *, shown: bool) -> list[Said]:
        """Reads new ids. shown: the client wants their log-probs."""
        ids = unpack(event.token_ids, "i").tolist()
        if shown:
            logprobs = unpack(event.logprobs, "f")
            self._logprobs += [
                TokenLogprob(token=self._tokenizer.decode([one]), logprob=logprob, token_id=one)
                for one, logprob in zip(ids, logprobs, strict=True)
            ]
        pieces = self._completion.feed(ids)
        if isinstance(event, pb.Finished):
            pieces += self._completion.end(event.stop)
            self._stop = "" if event.stop in self._tokenizer.turn_ends else event.stop
        said = [self._said(piece) for piece in pieces]
        if isinstance(event, pb.Finished):
            if event.finish.kind == trajectory_pb2.FINISH_KIND_LENGTH:
                self._end = "length"
            elif self._ids:
                self._end = "tool_calls"
        return said

    def complete(self) -> Complete:
        return Complete(
            choice=self._number,
            message=message_of(self._completion.pieces, self._ids),
            end=self._end,
            stop=self._stop,
            logprobs=tuple(self._logprobs),
        )

    def canonical(self, *, keep: bool) -> pb.Canonical:
        """The completion's digests, and its calls for the record. keep: and its text."""
        message = message_of(self._completion.pieces, self._ids)
        digests = reply_digests(self._digests, message)
        ids = iter(self._ids)
        calls = [
            pb.ReadCall(id=next(ids), name=one.name, arguments=one.arguments)
            if isinstance(one, ReadCall)
            else pb.ReadCall(arguments=one.text, invalid_reason=one.reason)
            for one in self._completion.pieces
            if isinstance(one, ReadCall | IllFormed)
        ]
        return pb.Canonical(
            digest=digests.message,
            reasoning=digests.reasoning,
            calls=calls,
            message=written([message]) if keep else b"",
        )

    def _said(self, piece: Piece) -> Said:
        if isinstance(piece, ReadCall):
            number = len(self._ids)
            self._ids.append(call_id(self._digests, self._number, number))
            call = ToolCall(id=self._ids[-1], name=piece.name, arguments=piece.arguments)
            return Said(choice=self._number, piece=call, number=number)
        words = Words(text=piece.text) if isinstance(piece, IllFormed) else piece
        return Said(choice=self._number, piece=words)
