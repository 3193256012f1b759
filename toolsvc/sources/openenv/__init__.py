"""OpenEnv, both ways: `openenv:URL` plays a server's environment, `toolsvc openenv` is a server.

`source`, `openenv_tool` and `episode` are the client. `serving`, `offer` and `answers` are the
server. The protocol is that of OpenEnv 0.10 (`openenv` on PyPI), spoken directly.
"""
