"""A small web site on loopback, for tools that read pages, and a place that nobody may reach."""

from __future__ import annotations

import contextlib
import http.server
import select
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.cookies import SimpleCookie
from urllib.parse import parse_qs, urlsplit

PAGES = {
    "/hello": """<title>Hello</title><h1>Hello</h1><p>A page.</p>
        <a href="/second">second</a> <a href="/second" target="_blank">in a new window</a>""",
    "/second": "<title>Second</title><h1>The second page</h1>",
    "/form": """<title>Form</title><form action="/said">
        <label>Name <input name="name"></label>
        <label>Colour <select name="colour"><option>red<option>blue</select></label>
        <button>Send</button></form>""",
    "/frame": """<title>Frame</title><iframe src="/inner"></iframe>""",
    "/inner": """<button onclick="this.textContent = 'pressed'">press</button>""",
    "/later": """<title>Later</title><p id="p">nothing yet</p><button onclick="
        fetch('/slow?seconds=0.3').then(() => p.textContent = 'it came')">ask</button>""",
    "/dialog": """<title>Dialog</title><button onclick="
        document.title = confirm('Sure?') + ' ' + prompt('Name?', 'Ada')">ask</button>""",
    "/windows": """<title>Windows</title><a href="/windows" target="_blank">more</a>""",
    "/tall": """<title>Tall</title><div style="height: 5000px">top</div><button>bottom</button>""",
    "/busy": """<title>Busy</title><button onclick="for (;;);">run</button>""",
    "/hungry": """<title>Hungry</title><script>
        const held = [];
        function eat() {
            held.push(new Uint8Array(16 << 20).fill(held.length + 1));
            if (held.length < 128) setTimeout(eat, 50);
        }</script><button onclick="eat()">eat</button>""",
    "/hoarder": """<title>Hoarder</title><script>
        const held = [];
        function hoard() {
            held.push(new Blob([new Uint8Array(4 << 20).fill(held.length)]));
            if (held.length < 256) setTimeout(hoard, 20);
        }</script><button onclick="hoard()">hoard</button>""",
    "/cacher": """<title>Cacher</title><script>
        async function store() {
            const cache = await caches.open('all');
            for (let n = 0; n < 256; n++)
                await cache.put('/' + n, new Response(new Uint8Array(4 << 20).fill(n)));
        }</script><button onclick="store()">hoard</button>""",
    "/spinner": """<title>Spinner</title><p>spins</p><script>
        setInterval(() => { for (const end = Date.now() + 300; Date.now() < end;); }, 400);
        </script>""",
    "/3d": """<title>3d</title><p id="p"></p><script>
        for (const kind of ['webgl', 'webgl2', '2d']) {
            const made = document.createElement('canvas').getContext(kind);
            p.append(kind + (made ? ' is there. ' : ' is not. '));
        }</script>""",
    "/powers": """<title>Powers</title><p id="p"></p><script>
        const say = text => p.append(text + ' ');
        navigator.permissions.query({name: 'geolocation'}).then(r => say('geolocation ' + r.state));
        navigator.serviceWorker.register('/worker.js').then(
            r => say('worker ' + (r && r.active)), () => say('worker none'));
        </script>""",
    "/escape": """<title>Escape</title><p>here</p>
        <a href="file:///etc/passwd">file</a> <a href="chrome://version">chrome</a>
        <button onclick="window.open('file:///etc/passwd')">open</button>
        <button onclick="location = 'data:text/html,<h1>data'">data</button>""",
    "/file-frame": """<title>Escape</title><p>here</p>
        <iframe src="file:///etc/passwd"></iframe>""",
    "/stuck": """<title>Stuck</title><input disabled aria-label="off"><button>under</button>
        <div style="position: fixed; inset: 0">cover</div>""",
}
LONG = "<title>Long</title>" + "".join(
    f"<p>line {number} of a long page</p>" for number in range(2000)
)


_LONGEST_SECONDS = 60.0


@dataclass
class Site:
    """`address`: host:port."""

    address: str
    pages: dict[str, str] = field(default_factory=dict)
    """More of them, by path."""
    asked: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)

    @contextlib.contextmanager
    def holding(self) -> Iterator[threading.Event]:
        """`/held` answers when this ends; gives what is set once somebody has asked for it."""
        self.asked.clear()
        self.released.clear()
        try:
            yield self.asked
        finally:
            self.released.set()

    def url(self, path: str) -> str:
        return f"http://{self.address}{path}"


@contextlib.contextmanager
def site() -> Iterator[Site]:
    """Answers on a port of loopback."""
    running = Site("")

    class Handler(_Handler):
        site = running

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    running.address = f"127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield running
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):
    site: Site

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        asked = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        if parts.path in ("/count", "/count-slowly", "/counted"):
            self._count(parts.path, asked)
        elif parts.path == "/redirect":
            self._answer(302, "", Location=asked["to"])
        elif parts.path == "/download":
            self._answer(200, "data", **{"Content-Disposition": "attachment; filename=data.txt"})
        elif parts.path == "/slow":
            time.sleep(float(asked["seconds"]))
            self._answer(200, "<title>Slow</title>")
        elif parts.path == "/held":
            self.site.asked.set()
            self.site.released.wait(_LONGEST_SECONDS)
            self._answer(200, "<title>Held</title>")
        elif parts.path in ("/said", "/echo"):
            self._answer(200, f"<title>Said</title><p>{' and '.join(asked.values())}</p>")
        elif parts.path == "/long":
            self._answer(200, LONG)
        elif page := self.site.pages.get(parts.path) or PAGES.get(parts.path):
            self._answer(200, page)
        else:
            self._answer(404, "<title>No such page</title>")

    do_POST = do_GET

    def _count(self, path: str, asked: dict[str, str]) -> None:
        """A counter in a cookie: of the browser, and of nothing else."""
        found = SimpleCookie(self.headers.get("Cookie", "")).get("count")
        count = int(found.value) if found else 0
        if path == "/count-slowly":
            time.sleep(float(asked["seconds"]))
        if path != "/counted":
            count += 1
        self._answer(200, f"<title>{count}</title>", **{"Set-Cookie": f"count={count}"})

    def _answer(self, status: int, page: str, **headers: str) -> None:
        data = f"<!doctype html><meta charset=utf-8><link rel=icon href=data:,>{page}".encode()
        with contextlib.suppress(ConnectionError):
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


class Listener:
    """A port, TCP and UDP, that says whether anybody came."""

    def __init__(self) -> None:
        self._tcp = socket.create_server(("127.0.0.1", 0))
        self.port = self._tcp.getsockname()[1]
        self._udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._udp.bind(("127.0.0.1", self.port))

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.address}/x"

    def reached(self, within: float = 0) -> bool:
        """Whether there was a connection, which is closed, or a datagram."""
        poll = select.poll()
        for port in (self._tcp, self._udp):
            poll.register(port, select.POLLIN)
        ready = [descriptor for descriptor, _ in poll.poll(within * 1000)]
        if self._tcp.fileno() in ready:
            self._tcp.accept()[0].close()
        return bool(ready)

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *_: object) -> None:
        self._tcp.close()
        self._udp.close()
