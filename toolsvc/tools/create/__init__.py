"""`create_and_execute` (SEARL): a tool that makes tools.

create_tool.py   the tool, and the tools that it has made
request.py       what the policy asks for, and what is wrong with it
inside.py        what runs in the sandbox: it makes the function and calls it
process.py       one program in one fresh process
"""
