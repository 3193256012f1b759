"""Chooses the isolation level and owns the pool that gives it.

Invariants
- Foreign code runs only at a level that passed its self-test in this very process's jails.
- If no level passes, `start` raises SandboxUnavailable with one sentence; there is no fallback.
  Code runs without a jail only if the operator set both options for it: see `plan`.
- `close` leaves no process behind, and so does the death of this process: jails end when their
  sockets close.
"""

from __future__ import annotations

from functools import partial

import structlog

from toolsvc.sandbox.config import (
    Driver,
    Isolation,
    SandboxConfig,
    possible_levels,
    zygote_settings,
)
from toolsvc.sandbox.errors import SandboxError, SandboxUnavailable
from toolsvc.sandbox.jailed.walls import kernel, syscalls
from toolsvc.sandbox.plan import JailPlan, plan_jail
from toolsvc.sandbox.pool import PoolStatistics, SandboxPool
from toolsvc.sandbox.selftest import examine
from toolsvc.sandbox.session import SandboxSession
from toolsvc.sandbox.shard import Shard

log = structlog.get_logger(__name__)


class Sandbox:
    """Async context manager: `async with Sandbox(config) as sandbox: await sandbox.take()`."""

    def __init__(self, config: SandboxConfig, driver: Driver = Driver.INTERPRETER) -> None:
        self.config = config
        self._driver = driver
        self._level: Isolation | None = None
        self._pool: SandboxPool | None = None

    async def __aenter__(self) -> Sandbox:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def level(self) -> Isolation:
        """The level in force."""
        if self._level is None:
            raise RuntimeError("the sandbox has not been started")
        return self._level

    @property
    def statistics(self) -> PoolStatistics:
        return self._running().statistics

    def figures(self) -> dict[str, float]:
        """Fill of the sandbox, for the metrics page."""
        now = self.statistics
        return {
            "sandboxes_ready": now.ready,
            "sandboxes_starting": now.creating,
            "sandboxes_waited_for": now.waiting,
            "sandboxes": now.living,
            "jails_replaced_total": now.replaced,
        }

    async def start(self) -> None:
        """Raises SandboxUnavailable if no level passes its self-test."""
        if kernel.MACHINE not in syscalls.NUMBERS:
            raise SandboxUnavailable(
                f"the sandbox has no system call table for {kernel.MACHINE}: "
                f"run the tool service on {syscalls.X86_64} or {syscalls.AARCH64}"
            )
        plan = plan_jail(self.config)
        levels = possible_levels(self.config, kernel.landlock_abi())
        failures = []
        for level, abi in levels:
            pool = make_pool(plan, self.config, level, abi)
            try:
                await pool.start()
                faults = await self._faults(pool, level)
            except SandboxUnavailable:
                # No other level would help.
                await pool.close()
                raise
            except SandboxError as error:
                faults = [str(error)]
            except BaseException:
                await pool.close()
                raise
            if not faults:
                pool = await self._with_driver(pool, plan, level, abi)
                self._pool, self._level = pool, level
                log.info(
                    "sandbox ready",
                    isolation=str(level),
                    landlock_abi=abi,
                    memory="watched",
                    disk="kernel" if pool.disk_bounded else "watched",
                )
                return
            await pool.close()
            log.warning("isolation level not usable", isolation=str(level), faults=faults)
            failures.append(f"{level}: {'; '.join(faults[:3])}")
        raise SandboxUnavailable(_no_level(self.config, failures))

    async def take(self) -> SandboxSession:
        """A fresh confined session, which the caller must close. Raises SandboxDown if none can be
        had."""
        return await self._running().take()

    async def close(self) -> None:
        if self._pool is not None:
            await self._pool.close()
            self._pool = None

    async def _faults(self, pool: SandboxPool, level: Isolation) -> list[str]:
        if level is not Isolation.NONE:
            return await examine(pool, self.config, level)
        log.warning(
            "FOREIGN CODE RUNS WITHOUT A SANDBOX: it may do whatever this account may",
            flags="--sandbox none --allow-unsandboxed",
        )
        (await pool.take()).close()
        return []

    async def _with_driver(
        self, tested: SandboxPool, plan: JailPlan, level: Isolation, abi: int
    ) -> SandboxPool:
        """The self-test is Python, so interpreters take it; another driver's sessions are confined
        by the same code in the same jails."""
        if self._driver is Driver.INTERPRETER:
            return tested
        await tested.close()
        pool = make_pool(plan, self.config, level, abi, self._driver)
        try:
            await pool.start()
        except BaseException as error:
            await pool.close()
            if isinstance(error, SandboxError):
                raise SandboxUnavailable(f"the sandbox did not start: {error}") from error
            raise
        return pool

    def _running(self) -> SandboxPool:
        if self._pool is None:
            raise RuntimeError("the sandbox is not running")
        return self._pool


def make_pool(
    plan: JailPlan,
    config: SandboxConfig,
    level: Isolation,
    abi: int,
    driver: Driver = Driver.INTERPRETER,
) -> SandboxPool:
    """A pool at this level, not started and not trusted yet."""
    settings = zygote_settings(config, level, abi, driver)
    exclusive = not level.shared_jail
    return SandboxPool(
        partial(Shard.start, plan, settings, exclusive=exclusive),
        shards=config.shards,
        # A jail for one session is expensive to hold and to start. Firejails start one at a time,
        # under one lock for the machine.
        ready=min(config.ready, 8) if exclusive else config.ready,
        starting=min(config.starting, 4) if exclusive else config.starting,
        exclusive=exclusive,
    )


def _no_level(config: SandboxConfig, failures: list[str]) -> str:
    if not failures:
        return (
            f"isolation level {config.isolation} cannot be had with this kernel and these options "
            "(full needs Landlock ABI 6, Linux 6.12; compat ABI 1, Linux 5.13; both need user "
            "namespaces): leave --isolation out to take the best that works"
        )
    return (
        f"no isolation level holds on this machine ({' | '.join(failures)}): allow unprivileged "
        "user namespaces (`sysctl kernel.unprivileged_userns_clone=1 "
        "kernel.apparmor_restrict_unprivileged_userns=0`, in a container `--security-opt "
        "seccomp=unconfined`) and start again"
    )
