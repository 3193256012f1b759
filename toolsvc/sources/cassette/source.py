"""`cassette:FILE`: recorded answers, or with `cassette.record` a recording."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, Field

from toolsvc.errors import StartError
from toolsvc.plugin.tool import STRICT, Tool
from toolsvc.sandbox.config import SandboxConfig
from toolsvc.sources.cassette.player import CassettePlayer, CassetteTool, OwnToolsOnly
from toolsvc.sources.cassette.recorder import Recorder, RecordingTool
from toolsvc.sources.cassette.tape import read
from toolsvc.sources.elsewhere import Source
from toolsvc.sources.loader import load_tools
from toolsvc.sources.remote.wire import descriptor_from_proto


class CassetteOptions(BaseModel):
    model_config = STRICT

    record: tuple[str, ...] = Field(
        default=(),
        description="tools whose answers are recorded into the file, as toolsvc serve names them: "
        '["grpc:127.0.0.1:50062"], ["python"]; none: the file is replayed',
    )


class CassetteSource(Source):
    where = "FILE"
    description = "Recorded answers; with cassette.record, a recording."
    Config = CassetteOptions

    @classmethod
    async def tools(
        cls, where: str, options: CassetteOptions, sandbox: SandboxConfig
    ) -> list[Tool]:
        """StartError if the file cannot be read, or is there already and would be recorded."""
        if not where:
            raise StartError("cassette: names no file: write cassette:FILE")
        path = _file(where)
        if options.record:
            tools = await load_tools(options.record, {}, sandbox)
            recorder = Recorder(path, tools)
            return [RecordingTool(recorder, tool) for tool in tools]
        player = CassettePlayer(read(path), where)
        recorded: list[Tool] = [
            CassetteTool(player, descriptor_from_proto(tool)) for tool in player.tape.tools
        ]
        return recorded or [OwnToolsOnly(player)]


def _file(where: str) -> Path:
    return Path(where).expanduser()
