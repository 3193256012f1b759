"""Curves of several runs over each other, in one page: `toolwright compare`."""
