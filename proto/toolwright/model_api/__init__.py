"""The OpenAI-compatible API as servers speak it: one reader for every client.

`address` finds the URL, `refused_keys` adapts a body to a server, `event_stream` splits a stream
into events, `deltas` reads events and whole answers. All of it is pure: the clients send the
requests. Nothing here imports more than the standard library.
"""
