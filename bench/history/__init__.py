"""What happened to a run, as its neighbours saw it, and the judge of it.

`events.py` is the vocabulary, `validator.py` names the first promise that a history breaks. The
simulator (`bench/simulate`) and the chaos tests write histories; both are judged here.
"""
