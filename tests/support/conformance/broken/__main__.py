"""`python -m tests.support.conformance.broken NAME --listen ADDRESS`.

NAME `reference` is the one that keeps the contract, no NAME lists all.
"""

from __future__ import annotations

import argparse
import asyncio

from tests.support.conformance.broken import BROKEN
from tests.support.conformance.reference import Reference, serving


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve a ToolService with one rule broken.")
    parser.add_argument("name", nargs="?", choices=["reference", *BROKEN], metavar="NAME")
    parser.add_argument("--listen", default="127.0.0.1:50061", help="host:port")
    given = parser.parse_args()
    if given.name is None:
        for one in BROKEN.values():
            print(f"{one.name:28} rule {one.rule:9} {one.fault}")
        return
    service = BROKEN[given.name].service() if given.name in BROKEN else Reference()
    asyncio.run(_serve(service, given.listen))


async def _serve(service: Reference, listen: str) -> None:
    async with serving(service, listen) as address:
        print(f"serving on {address}", flush=True)
        await asyncio.Event().wait()


main()
