"""A tool that does nothing: what is left of a call is the way to it and back."""

from toolsvc import RawFormat, Tool


class Noop(Tool):
    """Answers an empty text."""

    name = "noop"
    description = "Does nothing."
    format = RawFormat()
    stop_strings = ("</noop>",)
    parallel_calls = True

    async def call(self, state: object, call: object) -> str:
        return ""
