"""What a machine, an installation and a recipe lack, and the fix.

Each file has the checks of one subject. A check is a function of the `Patient` that returns
findings. `examining` runs them in parallel, each with a timeout. They change nothing, except one
file that measures the disk's speed.
"""
