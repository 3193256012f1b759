"""Text that several processes write, read or cut in the same way; pure.

schemas.py     a JSON Schema in an order that is always the same
filling.py     templates of prompts
sections.py    texts of a file by their headings: prompts and wordings
truncation.py  cuts a text that is too long
figures.py     numbers in lines for people
"""
