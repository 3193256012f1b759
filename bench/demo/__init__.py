"""`python -m bench.demo`: the whole system on one machine, from nothing to a report.

The way of the data: subject -> commands -> processes -> course -> records -> summary and report.
"""
