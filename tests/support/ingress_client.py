"""The ingress's side of `toolwright.ingress.v1`, as small as a test needs it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc.aio

from engine.types import Codec
from tests.support.outside import ROOT, digests_of
from tests.support.waiting import PATIENCE
from toolwright import wire
from toolwright.common.v1 import trajectory_pb2
from toolwright.ingress.v1 import ingress_pb2 as pb
from toolwright.ingress.v1 import ingress_pb2_grpc
from toolwright.rpc.channel import call
from toolwright.rpc.errors import from_rpc_error


@dataclass(kw_only=True)
class Talk:
    """One stream of a model call, step by step."""

    stream: Any
    codec: Codec
    messages: list[str]
    attached: pb.Attached | None = None
    deltas: list[pb.Delta] = field(default_factory=list)
    finished: list[pb.Finished] = field(default_factory=list)

    async def read(self) -> pb.GenerateResponse:
        """The next response. Raises ServiceError or TransportError."""
        try:
            response = await self.stream.read()
            if response is grpc.aio.EOF:
                await self.stream
                raise AssertionError("the stream ended early")
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error
        found: pb.GenerateResponse = response
        return found

    async def prompt(
        self,
        text: str | None = None,
        results: Sequence[pb.ReadResult] = (),
        author: int = trajectory_pb2.AUTHOR_PROMPT,
        *,
        by_prefix: bool = False,
    ) -> pb.Attached:
        """Sends the prompt: a tail after a match, else all ids."""
        self.attached = (await self.read()).attached
        matched = self.attached.matched
        new = "".join(f"<{one}>" for one in self.messages[matched:]) if text is None else text
        token_ids = self.codec.encode(new)
        ids = pb.Ids(
            token_ids=wire.pack(token_ids, "i"),
            token_count=len(token_ids),
            authors=[pb.AuthorRun(author=author, count=len(token_ids))],  # type: ignore[arg-type]
        )
        given = pb.Prompt(tail=ids) if self.attached.HasField("node") else pb.Prompt(fresh=ids)
        given.results.extend(results)
        given.by_prefix = by_prefix
        await self.stream.write(pb.GenerateRequest(prompt=given))
        return self.attached

    async def completions(self, n: int = 1) -> list[pb.Finished]:
        """Reads until all completions are whole, or until Replay."""
        while len(self.finished) < n:
            response = await self.read()
            match response.WhichOneof("step"):
                case "replay":
                    self.finished = list(response.replay.completions)
                case "delta":
                    self.deltas.append(response.delta)
                case "finished":
                    self.finished.append(response.finished)
                case step:
                    raise AssertionError(f"{step} in place of a completion")
        return self.finished

    def texts(self) -> list[str]:
        """Each completion as text, its deltas first."""
        found = []
        for one in self.finished:
            parts = [d.token_ids for d in self.deltas if d.choice == one.choice]
            found.append(self.codec.decode(wire.unpack(b"".join(parts) + one.token_ids, "i")))
        return found

    async def reply(self, *calls: pb.ReadCall) -> list[list[str]]:
        """Replies and waits for Durable: the conversation with each completion."""
        told = [[*self.messages, text] for text in self.texts()]
        reply = pb.Reply(
            completions=[pb.Canonical(digest=digests_of(one)[-1], calls=calls) for one in told]
        )
        await self.stream.write(pb.GenerateRequest(reply=reply))
        assert (await self.read()).HasField("durable")
        await self.stream.done_writing()
        return told


class IngressClient:
    """Calls of one engine's IngressService."""

    def __init__(self, channel: grpc.aio.Channel, codec: Codec) -> None:
        self.stub: Any = ingress_pb2_grpc.IngressServiceStub(channel)
        self.codec = codec

    async def take(self, number: int = 1, wait: float = PATIENCE) -> pb.TakeResponse:
        request = pb.TakeRequest(worker="w", number=number, wait=wire.duration(wait))
        taken: pb.TakeResponse = await call(self.stub.Take, request, timeout=2 * PATIENCE)
        return taken

    async def use_of(self, key: str, tokenizer: str = "") -> int:
        request = pb.CheckKeyRequest(key=key, tokenizer=tokenizer)
        found = await call(self.stub.CheckKey, request, timeout=PATIENCE)
        return int(found.use)

    async def ask(self, key: str, messages: Sequence[str], **fields: Any) -> Talk:
        """A stream whose Ask is sent."""
        stream = self.stub.Generate()
        digests = digests_of(messages)
        ask = pb.Ask(
            key=key,
            root=ROOT,
            digests=b"".join(digests),
            **{"request_digest": digests[-1], **fields},
        )
        await stream.write(pb.GenerateRequest(ask=ask))
        return Talk(stream=stream, codec=self.codec, messages=list(messages))

    async def talk(
        self, key: str, messages: Sequence[str], *calls: pb.ReadCall, **fields: Any
    ) -> list[str]:
        """One whole call: the conversation with its first completion."""
        talk = await self.ask(key, messages, **fields)
        await talk.prompt()
        await talk.completions(fields.get("n", 1))
        return (await talk.reply(*calls))[0]

    async def end(self, key: str, outcome: int = pb.OUTCOME_DONE, **fields: Any) -> int:
        request = pb.EndedRequest(key=key, outcome=outcome, **fields)  # type: ignore[arg-type]
        return int((await call(self.stub.Ended, request, timeout=PATIENCE)).calls)

    async def report(self, key: str, **fields: Any) -> None:
        await call(self.stub.Report, pb.ReportRequest(key=key, **fields), timeout=PATIENCE)
