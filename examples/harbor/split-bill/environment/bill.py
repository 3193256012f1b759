"""Splits a bill."""

import sys


def share(total, people):
    """What each pays, in cents."""
    each = total // people
    return [each] * people


if __name__ == "__main__":
    print(*share(int(sys.argv[1]), int(sys.argv[2])), sep="\n")
