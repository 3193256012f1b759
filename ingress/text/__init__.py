"""Messages to token ids, and a completion's ids to text, reasoning and calls.

rendering.py   messages in the form that chat templates take
tails.py       ids of a whole request, or of its new messages alone
decoding.py    ids to text, piece by piece
completion.py  one completion: its text without stops, its reasoning, its calls
kept.py        text of conversations that the engine keeps
"""
