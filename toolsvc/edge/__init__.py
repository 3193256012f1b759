"""How the host is spoken to: gRPC, and the HTTP faces beside it.

`service` is ToolService method by method, `servicer` what of it needs no session, `call_stream` its
stream of calls, `wire` the one place where protobuf becomes the host's words. `http_server` and
`metrics` are for those who speak HTTP.
"""
