from collections.abc import Iterator

import pytest
from harness import RunningGateway, running

from envport.registry import load


@pytest.fixture(scope="module")
def gateway() -> Iterator[RunningGateway]:
    with running(load("echo"), load("counter"), load("showcase"), load("catch")) as gateway:
        yield gateway
