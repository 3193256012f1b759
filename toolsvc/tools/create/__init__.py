"""`create_and_execute` (SEARL): a tool that makes tools.

- create_tool.py: the tool, and the tools that it has made
- request.py: the policy's request, and the checks on it
- inside.py: runs in the sandbox: it makes the function and calls it
- process.py: one program in one fresh process
"""
