"""The harness itself: links, plans, the clock, the seeds of each file."""

from __future__ import annotations

import os
import socket
import socketserver
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.crowd import CLOCK
from tests.chaos.harm.plan import HARMS, REST_S, TRAJECTORIES, Kind, draw
from tests.chaos.harm.proxy import Link, Mode, Proxy
from tests.chaos.seeds.runs import EACH_SLICE, FILES, SEEDS, seeds_of
from tests.support.net import free_port
from tests.support.tiers import SLICES

pytestmark = pytest.mark.quick

SHORT_S = 0.3


class Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        while data := self.request.recv(4096):
            self.request.sendall(data)


@pytest.fixture
def link() -> Iterator[Link]:
    """A link to a server that sends back what it gets."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Echo) as server:
        server.daemon_threads = True
        server.block_on_close = False
        threading.Thread(target=server.serve_forever, daemon=True).start()
        proxy = Proxy()
        try:
            yield proxy.link(free_port(), server.server_address[1])
        finally:
            proxy.close()
            server.shutdown()


def connected(link: Link) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", link.port), timeout=5)
    made.settimeout(SHORT_S)
    return made


def says(connection: socket.socket, text: bytes) -> bytes:
    connection.sendall(text)
    return connection.recv(100)


def test_a_link_passes_bytes_and_the_end(link: Link) -> None:
    with connected(link) as one:
        assert says(one, b"hello") == b"hello"
        one.shutdown(socket.SHUT_WR)
        assert one.recv(100) == b""


def test_a_cut_link_resets_what_stands_and_what_comes(link: Link) -> None:
    with connected(link) as one:
        says(one, b"hello")
        link.set(Mode.CUT)
        with pytest.raises(ConnectionResetError):
            one.recv(100)
        with pytest.raises(ConnectionResetError), connected(link) as other:
            says(other, b"hello")
    link.set(Mode.PASS)
    with connected(link) as one:
        assert says(one, b"hello") == b"hello"


def test_a_stalled_link_goes_on_where_it_stopped(link: Link) -> None:
    with connected(link) as one:
        says(one, b"hello")
        link.set(Mode.STALL)
        with pytest.raises(TimeoutError):
            says(one, b"again")
        link.set(Mode.PASS)
        assert one.recv(100) == b"again"


def test_a_hole_leaves_old_connections_half_open(link: Link) -> None:
    with connected(link) as one:
        says(one, b"hello")
        link.set(Mode.HOLE)
        link.set(Mode.PASS)
        with pytest.raises(TimeoutError):
            says(one, b"again")
        with connected(link) as other:
            assert says(other, b"new") == b"new"


def test_a_slow_link_is_slow(link: Link) -> None:
    with connected(link) as one:
        link.set(Mode.SLOW)
        began = time.monotonic()
        assert says(one, b"hello") == b"hello"
        assert time.monotonic() - began > 0.09


def test_equal_seeds_draw_equal_plans_and_all_kinds_are_drawn() -> None:
    plans = [draw(seed) for seed in range(SEEDS)]
    assert plans == [draw(seed) for seed in range(SEEDS)]
    kinds = Counter(harm.kind for plan in plans for harm in plan.harms)
    assert kinds.keys() == set(Kind)
    assert {"engine", "tools", "sampler0", "sampler1", "consumer", "redis"} <= {
        harm.target for plan in plans for harm in plan.harms
    }
    for plan in plans:
        size = plan.steps * plan.groups_per_step * plan.size
        assert TRAJECTORIES[0] <= size <= TRAJECTORIES[1]
        assert HARMS[0] <= len(plan.harms) <= HARMS[1]
        for number, one in enumerate(plan.harms):
            for other in plan.harms[number + 1 :]:
                apart = other.at - one.at - one.seconds
                assert one.target != other.target or apart >= REST_S


def test_every_seed_is_one_files_and_slices_play_a_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CHAOS_SEED", raising=False)
    every = [seed for file in range(FILES) for seed in seeds_of(file, part=None)]
    assert sorted(every) == list(range(SEEDS))
    played = [
        [seed for file in range(FILES) for seed in seeds_of(file, part=part)]
        for part in range(SLICES)
    ]
    assert all(len(seeds) == EACH_SLICE for seeds in played)
    assert len({seed for seeds in played for seed in seeds}) == SLICES * EACH_SLICE
    monkeypatch.setenv("CHAOS_SEED", "17")
    assert [seed for file in range(FILES) for seed in seeds_of(file, part=3)] == [17]


def test_a_clock_is_shifted_while_the_process_runs(tmp_path: Path) -> None:
    clock = tmp_path / "clock"
    clock.write_bytes(struct.pack("<d", 0.0))
    program = (
        "import struct, time\n"
        "before, steady = time.time(), time.monotonic()\n"
        f"open({str(clock)!r}, 'r+b').write(struct.pack('<d', 3600.0))\n"
        "print(round(time.time() - before), round(time.monotonic() - steady))\n"
        "print(round((time.time_ns() / 1e9 - before)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(CLOCK), "CHAOS_CLOCK": str(clock)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["3600", "0", "3600"], done.stderr
