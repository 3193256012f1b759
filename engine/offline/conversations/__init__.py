"""Recorded conversations in published layouts, read into one form.

`lines` reads files and `layouts` recognises the layout of a row. `openai`, `hermes` and `responses`
read one layout each, `functions` reads a row's tools, and `frames` knows the sentences around them.
"""
