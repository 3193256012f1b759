"""What a machine, an installation and a recipe lack, and the fix.

A check is a function of the `Patient` that yields findings; `visit` has the tables of them, and
runs them side by side. They change nothing, except one file that measures the disk's speed.
"""
