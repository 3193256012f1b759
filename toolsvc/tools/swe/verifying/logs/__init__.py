"""Logs of test runners in the formats of published sets, a module each; pure, in linear time.

Invariants
- A log that breaks off before its runner's last line reports nothing.
- A failure stands: no line about the same test takes it back.
- A test's own output is not its runner's report, as far as the format tells them apart.

The formats are those of the public readers: R2E-Gym/R2E-Gym (execution_log_parser.py),
SWE-bench/SWE-bench (harness/log_parsers/python.py) and scaleapi/SWE-bench_Pro-os.
"""
