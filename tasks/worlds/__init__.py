"""Worlds that are made from a seed, with questions whose right answers are known.

encyclopedia.py  people, towns, companies and rivers: passages to search, questions of some hops
relations.py     what is said of them, and in which words
names.py         what they are called
"""
