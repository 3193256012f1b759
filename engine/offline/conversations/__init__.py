"""Recorded conversations in the layouts that others publish, read as one.

`lines` reads files, `layouts` tells which layout a row has, `openai` and `hermes` read one each,
`functions` reads the tools that a row carries, `frames` knows the words around them."""
