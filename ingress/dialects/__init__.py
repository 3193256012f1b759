"""The APIs that agents speak: each reads a request and writes responses, chunks and errors. Pure.

types.py     the interface of a dialect
reading.py   checks that several dialects need
chat.py      OpenAI's chat completions
responses.py OpenAI's responses
messages.py  Anthropic's messages
"""
