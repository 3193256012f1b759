"""How a confined child handles its calls: `interpreter` runs Python, `shell` a `bash` and file
tools, `database` SQL.

`channel` is a driver's end of the conversation, `files` and `texts` are the file tools, `table` is
what a query found.
"""
