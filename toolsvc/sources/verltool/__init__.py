"""VerlTool both ways: its tool classes as tools of ours (`source`), and its HTTP protocol in front
of any tools of ours (`http`), so that an unchanged verl-tool trainer can call them.

What follows VerlTool here was read in TIGER-AI-Lab/verl-tool, commit 980962b.
"""
