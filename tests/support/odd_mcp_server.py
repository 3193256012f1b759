"""An MCP server on standard streams that does one thing as no server should; argv[1] says which."""

import json
import sys
from typing import Any

MODE = sys.argv[1] if __name__ == "__main__" else ""
ECHO = {"name": "echo", "description": "Echoes.", "inputSchema": {"type": "object"}}
RAW = {
    "half a pair": r'{"content": [{"type": "text", "text": "a\ud800b"}]}',
    "other half": r'{"content": [{"type": "text", "text": "\udc00"}]}',
    "half in meta": r'{"content": [], "_meta": {"k": "\ud83d"}}',
    "unknown content": '{"content": [{"type": "resource_foo", "text": "x"}]}',
    "no content": '{"content": 5}',
    "not a number": '{"content": [], "structuredContent": {"x": NaN}}',
    "text without text": '{"content": [{"type": "text"}]}',
}
NAMES = {
    "names": ["a.b", "a/b", "c"],
    "names as here": ["a/b", "a_b", "a.b", "a_b_2"],
    "foreign names": ["\u691c\u7d22", "\u8a08\u7b97"],
}
CURSORS: dict[str, list[str]] = {
    "empty": [""],
    "same": ["x"] * 1000,
    "circle": ["x", "y", "z"] * 1000,
    "pages": ["1", "2", ""],
    "endless": [str(number) for number in range(1000)],
}


def listed(page: int) -> dict[str, Any]:
    if MODE in NAMES:
        return {
            "tools": [{"name": name, "inputSchema": ECHO["inputSchema"]} for name in NAMES[MODE]]
        }
    if MODE == "two of one name":
        return {"tools": [ECHO, {**ECHO, "description": "Another."}]}
    if MODE == "unreadable list":
        return {"tools": [{"name": 5}]}
    cursors = CURSORS.get(MODE, [])
    tools = [ECHO] if MODE != "pages" else [{**ECHO, "name": f"t{page}"}]
    return {"tools": tools, **({"nextCursor": cursors[page]} if page < len(cursors) else {})}


def main() -> None:
    page = 0
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        result = "{}"
        if request["method"] == "initialize":
            version = request["params"]["protocolVersion"]
            info = {"name": "odd", "version": "1"}
            found = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
            result = json.dumps(found)
        elif request["method"] == "tools/list":
            result = json.dumps(listed(page))
            page += 1
        elif request["method"] == "tools/call":
            said = [{"type": "text", "text": request["params"]["name"]}]
            result = RAW.get(MODE, json.dumps({"content": said}))
            print("a line of a log", flush=True)
        print(f'{{"jsonrpc": "2.0", "id": {request["id"]}, "result": {result}}}', flush=True)


if __name__ == "__main__":
    main()
