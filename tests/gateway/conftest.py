from collections.abc import Iterator

import pytest
from harness import RunningGateway, running

from envport.registry import load


@pytest.fixture(scope="module")
def gateway() -> Iterator[RunningGateway]:
    with running(*[load(n) for n in ("echo", "counter", "catch")]) as gateway:
        yield gateway
