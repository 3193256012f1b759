"""Converts the content of MCP results to observations and back; pure."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Iterator

from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
)

from toolsvc.types import Media, Part, Result, Text, ToolError
from toolwright.types import ToolErrorKind

_UNKNOWN = "application/octet-stream"


def as_result(answer: CallToolResult) -> Result:
    """Texts, images and sounds in their order; structured content as JSON where it came alone. A
    result that the server marks as an error is a tool error. Raises ValueError for media that are
    no base64."""
    parts = tuple(_parts(answer.content))
    if not parts and answer.structured_content is not None:
        parts = (Text(text=json.dumps(answer.structured_content, ensure_ascii=False)),)
    if not answer.is_error:
        return Result(observation=parts)
    said = "".join(part.text for part in parts if isinstance(part, Text)) or "the tool failed"
    error = ToolError(kind=ToolErrorKind.EXCEPTION, message=said)
    return Result(observation=parts or (Text(text=said),), error=error)


def as_content(parts: Iterable[Text | Media]) -> list[ContentBlock]:
    """Media that are neither image nor sound travel as embedded resources."""
    found: list[ContentBlock] = []
    for number, part in enumerate(parts):
        if isinstance(part, Text):
            found.append(TextContent(type="text", text=part.text))
            continue
        data = base64.b64encode(part.data).decode()
        kind = part.media_type.partition("/")[0]
        if kind == "image":
            found.append(ImageContent(type="image", data=data, mime_type=part.media_type))
        elif kind == "audio":
            found.append(AudioContent(type="audio", data=data, mime_type=part.media_type))
        else:
            resource = BlobResourceContents(
                uri=f"observation:///{number}", mime_type=part.media_type, blob=data
            )
            found.append(EmbeddedResource(type="resource", resource=resource))
    return found


def _parts(content: Iterable[ContentBlock]) -> Iterator[Part]:
    for block in content:
        if isinstance(block, TextContent):
            yield Text(text=block.text)
        elif isinstance(block, ImageContent | AudioContent):
            yield Media(media_type=block.mime_type, data=_decoded(block.data))
        elif isinstance(block, ResourceLink):
            yield Text(text=f"{block.name}: {block.uri}")
        elif isinstance(block.resource, BlobResourceContents):
            media_type = block.resource.mime_type or _UNKNOWN
            yield Media(media_type=media_type, data=_decoded(block.resource.blob))
        else:
            yield Text(text=block.resource.text)


def _decoded(data: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except binascii.Error as error:
        raise ValueError(f"the server sent media that are no base64: {error}") from error
