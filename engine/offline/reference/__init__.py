"""Results that papers print, and ours beside them.

papers.py     the tables of bench/reference/*.json as types
names.py      which suite of a run is which set of a table
comparing.py  a table with our results beside it: differences, standard errors, ranks
showing.py    the comparison as text for a terminal
fragment.py   the same as a piece of HTML (needs jinja2)

Imports no process, and no third party but fragment.py.
"""

from engine.offline.reference.comparing import Comparison, Result, against, read_results
from engine.offline.reference.names import assignments
from engine.offline.reference.papers import ReferenceFault, find, papers
from engine.offline.reference.showing import shown

__all__ = [
    "Comparison",
    "ReferenceFault",
    "Result",
    "against",
    "assignments",
    "find",
    "papers",
    "read_results",
    "shown",
]
