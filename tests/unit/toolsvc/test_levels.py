"""Which isolation levels are tried, and how a self-test is judged."""

from dataclasses import replace

import pytest

from toolsvc.sandbox.config import (
    Backend,
    Isolation,
    SandboxConfig,
    possible_levels,
    zygote_settings,
)
from toolsvc.sandbox.selftest import judge

FULL, COMPAT, PER_SESSION = Isolation.FULL, Isolation.COMPAT, Isolation.PER_SESSION
NONE = Isolation.NONE
SOUND = {
    "done": {},
    "denied": {"TCP": "EPERM"},
    "no_new_privs": 1,
    "seccomp": 2,
    "environment": ["HOME", "PATH"],
    "descriptors": [0, 1, 2, 3],
    "folder": [],
    "core": 0,
    "uid_is_root": False,
}


@pytest.mark.parametrize(
    ("abi", "config", "levels"),
    [
        (7, SandboxConfig(), [(FULL, 7), (COMPAT, 5), (PER_SESSION, 7)]),
        (2, SandboxConfig(), [(COMPAT, 2), (PER_SESSION, 2)]),
        (0, SandboxConfig(), [(PER_SESSION, 0)]),
        (7, SandboxConfig(landlock_abi=3), [(COMPAT, 3), (PER_SESSION, 3)]),
        (7, SandboxConfig(user_namespaces=False), [(PER_SESSION, 7)]),
        (7, SandboxConfig(isolation=COMPAT), [(COMPAT, 5)]),
        (3, SandboxConfig(isolation=FULL), []),
    ],
)
def test_levels_come_best_first(abi: int, config: SandboxConfig, levels: list) -> None:
    assert possible_levels(config, abi) == levels


def test_only_a_jail_of_its_own_goes_without_namespaces() -> None:
    for level in Isolation:
        settings = zygote_settings(SandboxConfig(), level, 7)
        assert settings["confinement"]["namespaces"] is (level in (FULL, COMPAT))


def test_no_jail_is_never_a_level_that_one_falls_back_to() -> None:
    for abi in range(8):
        assert all(level is not NONE for level, _ in possible_levels(SandboxConfig(), abi))
    without = SandboxConfig(backend=Backend.NONE, allow_unsandboxed=True)
    assert possible_levels(without, 7) == [(NONE, 0)]
    assert possible_levels(replace(without, isolation=FULL), 7) == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"done": {"read /etc/shadow": "16"}}, "could read /etc/shadow"),
        ({"done": {"TCP": "connected"}}, "could have TCP"),
        ({"no_new_privs": 0}, "NoNewPrivs"),
        ({"seccomp": 0}, "seccomp"),
        ({"uid_is_root": True}, "root"),
        ({"core": 1}, "core"),
        ({"environment": ["HOME", "API_KEY"]}, "API_KEY"),
        ({"descriptors": [0, 1, 2, 3, 9]}, "open file 9"),
        ({"folder": ["secret"]}, "secret in its folder"),
        ({"done": {"change /tmp": "its mode"}}, "could change /tmp"),
    ],
)
def test_every_fault_is_told(change: dict, says: str) -> None:
    assert judge(SOUND) == []
    faults = judge({**SOUND, **change})
    assert len(faults) == 1
    assert says in faults[0]
