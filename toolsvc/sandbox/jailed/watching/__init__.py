"""What sessions use, and what becomes of those that use too much: `measure` counts, `share` gives
each its part of the processors, `watch` decides.
"""
