"""The tool: looks one thing up in a shop's list. `toolsvc serve tool.py` serves it by itself.

The policy writes `<look_up> lamp price</look_up>` and reads `<result> 1382</result>`. One parameter
makes a tag tool; several make a JSON call (docs/tools/your-own.md).
"""

from __future__ import annotations

import csv
from pathlib import Path

from toolsvc import tool

with Path(__file__).with_name("stock.csv").open(encoding="utf-8") as file:
    STOCK = {row.pop("article"): row for row in csv.DictReader(file)}


@tool
def look_up(query: str) -> str:
    "Tells price, stock, place or weight of an article: `lamp price`."
    article, _, column = query.strip().partition(" ")
    return STOCK.get(article, {}).get(column, "unknown")
