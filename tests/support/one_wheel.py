"""A package index on loopback with one wheel, which it may cut off or replace."""

from __future__ import annotations

import http.server
import io
import threading
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

PROJECT, VERSION = "tiny-model", "1.0"
FILE = "tiny_model-1.0-py3-none-any.whl"
INFO = "tiny_model-1.0.dist-info"
MODEL = "tiny_model/tiny.gguf"


def wheel_bytes(model: bytes = b"GGUF" * 5000, *, without: Sequence[str] = ()) -> bytes:
    """A wheel that pip takes, stored without compression."""
    members = {
        MODEL: model,
        f"{INFO}/LICENSE": b"do as you like",
        f"{INFO}/METADATA": b"Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n",
        f"{INFO}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{INFO}/RECORD": b"",
    }
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            if name not in without:
                archive.writestr(zipfile.ZipInfo(name), content)
    return file.getvalue()


@dataclass
class Index:
    """`whole`: from which download on nothing is cut off in the middle."""

    content: bytes
    whole: int = 0
    downloads: int = 0
    url: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)


@contextmanager
def served(index: Index) -> Iterator[Index]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.endswith(".whl"):
                with index.lock:
                    number, index.downloads = index.downloads, index.downloads + 1
                content, kind = index.content, "application/octet-stream"
                sent = content if number >= index.whole else content[: len(content) // 2]
            else:
                content = sent = f'<!doctype html><a href="/files/{FILE}">{FILE}</a>'.encode()
                kind = "text/html"
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(sent)
            self.close_connection = True

        def log_message(self, *_: object) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    index.url = f"http://127.0.0.1:{server.server_address[1]}/simple"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield index
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
