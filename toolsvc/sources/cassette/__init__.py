"""Answers of real tools, recorded once and replayed: `cassette:FILE`.

- source.py: the source: replay or recording
- player.py: tools that answer from the file
- recorder.py: real tools whose answers are recorded
- tape.py: the file: the meaning of its lines, and the answer of each call
"""
