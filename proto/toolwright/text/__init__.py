"""Text that several processes read or cut in the same way; pure.

schemas.py     a JSON Schema in an order that is always the same
filling.py     templates of prompts
truncation.py  what stays of a text that is too long
"""
