#!/bin/bash
# check.py runs the program as another account, which reads no test and writes no reward.
chmod 700 /tests /logs/verifier
if python3 -I /tests/check.py; then
    echo 1 > /logs/verifier/reward.txt
else
    echo 0 > /logs/verifier/reward.txt
fi
