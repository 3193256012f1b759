"""The tools that the conformance suite of the Model Context Protocol calls, as tools of ours."""

import base64
import io
import wave
from typing import Any

from toolsvc import Media, Result, Text, ToolFailed, tool
from toolsvc.schemas.schema_tool import SchemaTool

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def _silence() -> bytes:
    target = io.BytesIO()
    with wave.open(target, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(1)
        sound.setframerate(8000)
        sound.writeframes(bytes(80))
    return target.getvalue()


@tool
def test_simple_text() -> str:
    "Returns a text."
    return "This is a simple text response for testing."


@tool(media=True)
def test_image_content() -> Result:
    "Returns an image."
    return Result(observation=(Media(media_type="image/png", data=PNG),))


@tool(media=True)
def test_audio_content() -> Result:
    "Returns a sound."
    return Result(observation=(Media(media_type="audio/wav", data=_silence()),))


@tool(media=True)
def test_embedded_resource() -> Result:
    "Returns a file."
    return Result(observation=(Media(media_type="application/pdf", data=b"%PDF-1.7"),))


@tool(media=True)
def test_multiple_content_types() -> Result:
    "Returns a text, an image and a file."
    return Result(
        observation=(
            Text(text="Multiple content types test:"),
            Media(media_type="image/png", data=PNG),
            Media(media_type="application/json", data=b'{"test": "data", "value": 123}'),
        )
    )


@tool
def test_error_handling() -> str:
    "Fails."
    raise ToolFailed("This tool intentionally returns an error for testing")


class Schema2020(SchemaTool):
    name = "json_schema_2020_12_tool"
    description = "Tool with JSON Schema 2020-12 features."

    def __init__(self) -> None:
        self.schema = {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "$defs": {
                "address": {
                    "type": "object",
                    "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
                }
            },
            "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
            "additionalProperties": False,
        }

    def call(self, state: Any, call: Any) -> str:
        return "called"
