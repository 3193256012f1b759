"""`gym:ID`: an episode of a gymnasium, textarena or reasoning-gym environment as a tool.

`source` reads the word, `gym_tool` is the tool, and `inside` plays the episode in the sandbox.
"""
