"""Answers of real tools, recorded once and replayed: `cassette:FILE`.

source.py     which of the two it is
player.py     tools that answer from the file
recorder.py   real tools, whose answers are written down
tape.py       the file: what its lines say, and which answer belongs to which call
"""
