"""VerlTool in both directions. `source` serves VerlTool's tool classes as tools of this service.
`http` serves any tools over VerlTool's HTTP protocol, so that an unchanged verl-tool trainer can
call them.

What follows VerlTool here was read in TIGER-AI-Lab/verl-tool, commit 980962b.
"""
