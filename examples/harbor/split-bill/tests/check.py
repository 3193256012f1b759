"""Runs the program as the account nobody, and compares what it prints."""

import subprocess

NOBODY = 65534
CASES = {
    ("100", "3"): [34, 33, 33],
    ("100", "4"): [25] * 4,
    ("7", "1"): [7],
    ("5", "4"): [2, 1, 1, 1],
}

for words, expected in CASES.items():
    ran = subprocess.run(
        ["python3", "-I", "/app/bill.py", *words],
        cwd="/",
        env={"PATH": "/usr/bin:/bin"},
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=10,
        check=True,
    )
    printed = ran.stdout.split()
    assert printed == list(map(str, expected)), f"{words}: {printed} instead of {expected}"
