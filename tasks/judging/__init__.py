"""An answer against the right ones.

words.py  of open questions: exact match, cover match, F1
"""
