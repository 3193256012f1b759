"""The `image` tool: what the policy reads of a request, and what stays of it in the session.

The service itself decodes nothing: `toolsvc.confined` does, in a process for each file. Nothing is
decoded before a call needs it, so a session costs little to open, and the policy that
looks at a broken image reads so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from toolsvc.confined.errors import CannotStart, InputFailed, InputFault
from toolsvc.confined.pool import ConfinedPool, Jobs
from toolsvc.errors import Reason, Refused, StartError
from toolsvc.plugin.actions import InvalidAction, last_call
from toolsvc.plugin.results import failure
from toolsvc.plugin.tool import STRICT, Cancellation, InService, OutOfProcess, Tool
from toolsvc.sandbox.config import MIB, SandboxConfig
from toolsvc.tools.image.album import Album, HeldFile, Source, named_files
from toolsvc.tools.image.arguments import Function, ImageArguments
from toolsvc.tools.image.types import Encoding, ImageFault, ImageLimits, Picture, UnusableFile
from toolsvc.tools.image.wire import ImageRequest, NoAnswer, most_answered, read_answer
from toolsvc.types import Call, Descriptor, Media, Part, RawFormat, Result, SessionInfo, Text
from toolwright.types import ToolErrorKind

OPEN, CLOSE = "<tool_call>", "</tool_call>"


def find_request(action: str, tool: str) -> dict[str, Any]:
    """Arguments of the action's last block, not yet checked against `ImageArguments`. The call
    names a function; or the tool, with the function among the arguments, for callers that know only
    the tool's schema. Raises InvalidAction for any other action."""
    name, arguments = last_call(action, OPEN, CLOSE)
    if name == tool:
        return arguments
    if name not in list(Function):
        raise InvalidAction(f"there is no function {name!r}, only {', '.join(Function)}")
    return {**arguments, "function": name}


_KINDS = {
    ImageFault.FILE: ToolErrorKind.EXCEPTION,
    ImageFault.LIMIT: ToolErrorKind.LIMIT,
    ImageFault.MEMORY: ToolErrorKind.OUT_OF_MEMORY,
    ImageFault.TIME: ToolErrorKind.TIMEOUT,
    ImageFault.CRASH: ToolErrorKind.CRASHED,
}
"""Fault.REQUEST is not here: it is an invalid action."""

_FAULTS = {
    InputFault.MEMORY: (ImageFault.MEMORY, "out of memory"),
    InputFault.TIME: (ImageFault.TIME, "the file takes too long to decode"),
}
_CRASH = (ImageFault.CRASH, "the file made its decoder crash")

USAGE = """\
<tool_call>{"name": "crop_image", "arguments": {"bbox_2d": [left, top, right, bottom], \
"target_image": 1}}</tool_call> shows a part of an image, in pixels; zoom_in does the same.
{"name": "crop_image_normalized", "arguments": {"bbox_2d": [0.1, 0.2, 0.5, 0.6], "target_image": \
1}}: the same, in shares of its width and height.
{"name": "resize_image", "arguments": {"target_image": 1, "width": 800}}: or height, or both.
{"name": "rotate_image", "arguments": {"target_image": 1, "angle": 90}}: clockwise.
{"name": "select_frames", "arguments": {"target_frames": [1, 5, 9]}}: shows frames of the video, \
at most 8.
Images are numbered from 1; each that is shown gets the next number and can be named later."""


class ImageOptions(BaseModel):
    """Options of `image`."""

    model_config = STRICT

    folder: Path | None = Field(
        default=None, description="beneath which metadata may name images and videos"
    )
    pixels: int = Field(default=50_000_000, ge=10_000, description="of an image, at most")
    file_mib: int = Field(default=64, ge=1, description="of an image's file, at most")
    long_side: int = Field(
        default=2048, ge=64, le=8192, description="of a result, at most, in pixels"
    )
    encoding: Encoding = Field(
        default="auto", description="png, jpeg, or auto: png for an image without loss"
    )
    padding: float = Field(
        default=0.1, ge=0, le=1, description="around a box: share of the side, at most 600 pixels"
    )
    sampled_frames: int | None = Field(
        default=None, ge=1, description="a video is numbered as so many frames, evenly spaced"
    )
    images: int = Field(default=64, ge=1, description="of a session, at most")
    session_mib: int = Field(default=64, ge=1, description="held for a session, at most")
    workers: int = Field(default=2, ge=1, le=64, description="files decoded at once")
    memory_mib: int = Field(default=1024, ge=256, description="for each of them")


class ImageTool(Tool):
    Config = ImageOptions
    executor = OutOfProcess
    name = "image"
    description = "Crops, resizes and turns images, and shows frames of videos."
    usage = USAGE
    arguments = ImageArguments
    format = RawFormat()
    stop_strings = (CLOSE,)
    stateful = True
    media = True
    run_limit = 30.0

    def __init__(self, config: ImageOptions, sandbox: SandboxConfig | None = None) -> None:
        super().__init__(config)
        if config.folder is not None and not config.folder.is_dir():
            raise StartError(f"--set image.folder={config.folder}: there is no such folder")
        self._limits = ImageLimits(
            pixels=config.pixels,
            file_bytes=config.file_mib * MIB,
            long_side=config.long_side,
            padding=config.padding,
            sampled_frames=config.sampled_frames,
            encoding=config.encoding,
        )
        self._pool = ConfinedPool(
            "toolsvc.tools.image.decoding.parser",
            count=config.workers,
            memory_bytes=config.memory_mib * MIB,
            sandbox=sandbox,
        )

    async def start(self) -> None:
        try:
            await self._pool.start()
        except CannotStart as error:
            if error.missing:
                why = f"tool 'image' needs the package {error.missing}"
                raise StartError(f"{why}: pip install 'toolwright[image]'") from error
            raise StartError(
                f"the image tool's decoding process does not start ({error}): raise "
                "image.memory_mib if it has too little"
            ) from error

    async def stop(self) -> None:
        await self._pool.close()

    def figures(self) -> Mapping[str, float]:
        return self._pool.figures()

    def open(self, session: SessionInfo) -> Album:
        images, videos = self._task_files(session)
        return Album(
            images,
            videos,
            most_images=self.config.images,
            most_bytes=self.config.session_mib * MIB,
        )

    def parse(self, action: str, descriptor: Descriptor) -> dict[str, Any]:
        return find_request(action, self.name)

    async def run(self, state: Album, call: Call, cancellation: Cancellation) -> Result:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("run outside of a task")
        cancellation.on_request(task.cancel)
        async with self._pool.place(call.session.session_id, call.run_limit) as jobs:
            work = partial(self._work, jobs)
            return await InService(self, work).run(state, call, cancellation)

    async def _work(self, jobs: Jobs, album: Album, call: Call) -> Result:
        arguments = ImageArguments.model_construct(**call.arguments)
        try:
            pictures = await self._pictures(jobs, album, arguments, call.run_limit)
            numbers = album.add(pictures)
        except UnusableFile as error:
            if error.fault is ImageFault.REQUEST:
                raise InvalidAction(error.reason) from error
            return failure(_KINDS[error.fault], error.reason)
        parts: list[Part] = []
        for number, picture in zip(numbers, pictures, strict=True):
            parts += [
                Text(text=_caption(number, picture)),
                Media(media_type=picture.media_type, data=picture.data),
            ]
        return Result(observation=tuple(parts))

    async def _pictures(
        self, jobs: Jobs, album: Album, arguments: ImageArguments, seconds: float
    ) -> list[Picture]:
        ask = partial(self._ask, jobs, seconds)
        if arguments.function is not Function.SELECT_FRAMES:
            album.expect(1)
            return await ask(arguments, album.image(arguments.target_image))
        frames = arguments.target_frames or []
        album.expect(len(frames))
        if album.videos:
            return await ask(arguments, album.video(arguments.target_video))
        # The images of a session without a video are the frames of one, as VerlTool sends them.
        whole = ImageArguments(function=Function.CROP_IMAGE_NORMALIZED, bbox_2d=(0, 0, 1, 1))
        sources = [album.image(number) for number in frames]
        return [picture for one in sources for picture in await ask(whole, one)]

    async def _ask(
        self, jobs: Jobs, seconds: float, arguments: ImageArguments, source: Source
    ) -> list[Picture]:
        limits = self._limits
        request = ImageRequest(arguments=arguments, limits=limits).model_dump_json()
        most = most_answered(limits, len(arguments.target_frames or "."))
        try:
            with await asyncio.to_thread(source.open) as file:
                data = await jobs.run(request, file, seconds=seconds, most=most)
            answer = read_answer(data, limits.long_side)
        except OSError as error:
            raise UnusableFile(
                ImageFault.FILE, f"the file cannot be read: {error.strerror}"
            ) from error
        except InputFailed as error:
            raise UnusableFile(*_FAULTS.get(error.fault, _CRASH)) from error
        except NoAnswer as error:
            raise UnusableFile(*_CRASH) from error
        if answer.unusable is not None:
            raise answer.unusable
        return answer.pictures

    def _task_files(self, session: SessionInfo) -> tuple[list[Source], list[Source]]:
        """Images and videos: those that came with the session, then those that its metadata name.
        Raises Refused if they cannot be had."""
        images: list[Source] = []
        videos: list[Source] = []
        for media in session.blobs.values():
            is_video = media.media_type.startswith("video/")
            (videos if is_video else images).append(HeldFile(data=media.data))
        folder = self.config.folder
        if folder is not None:
            images += named_files(session.metadata, "images", folder)
            videos += named_files(session.metadata, "videos", folder)
        elif not session.blobs and (session.metadata.keys() & {"images", "videos"}):
            raise Refused(
                Reason.INVALID_REQUEST,
                "the metadata name images or videos, and the service has no folder for them",
                subject="metadata",
                fix="send them as blobs, or serve the tool with --set image.folder=FOLDER",
            )
        return images, videos


def _caption(number: int, picture: Picture) -> str:
    width, height = picture.size
    note = f" ({picture.note})" if picture.note else ""
    return f"Image {number}{note}: {width} x {height} pixels\n"
