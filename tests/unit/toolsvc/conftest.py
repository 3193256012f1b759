"""A host whose tools need no sandbox."""

from collections.abc import AsyncIterator

import pytest

from tests.support.hosts import Counter, Parallel
from toolsvc.host.host import Host


@pytest.fixture
def counter() -> Counter:
    return Counter()


@pytest.fixture
async def host(counter: Counter) -> AsyncIterator[Host]:
    async with Host([counter, Parallel()], max_sessions=8) as running:
        yield running
