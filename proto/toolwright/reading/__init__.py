"""How outside input is read: task rows, actions, answers, pixels and character sets.

Every package reads the same input through the same function here. Nothing in this package imports
torch, and a module imports a third-party library only if an extra of the project installs it.
"""
