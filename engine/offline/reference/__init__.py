"""Results that papers print, compared with a run's results.

papers.py     the tables of bench/reference/*.json as types
names.py      finds the set of a table that a suite of a run is
comparing.py  adds a run's results to a table: differences, standard errors, ranks
showing.py    the comparison as text for a terminal
fragment.py   the comparison as blocks of a page

Imports no process and no third-party library.
"""

from engine.offline.reference.comparing import Comparison as Comparison
from engine.offline.reference.comparing import Result as Result
from engine.offline.reference.comparing import against as against
from engine.offline.reference.comparing import read_results as read_results
from engine.offline.reference.names import assignments as assignments
from engine.offline.reference.papers import ReferenceFault as ReferenceFault
from engine.offline.reference.papers import find as find
from engine.offline.reference.papers import papers as papers
from engine.offline.reference.showing import shown as shown
