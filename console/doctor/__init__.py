"""What a machine, an installation and a recipe lack, and the mend.

Each file holds the checks of one subject; a check is a function of the `Patient` that returns
findings. `examining` runs them beside each other, each with a time-out. Nothing here changes
anything but for one file that the disk's speed is measured with.
"""
