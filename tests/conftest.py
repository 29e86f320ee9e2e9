"""What all tests need, however they were started."""

from __future__ import annotations

import gc
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import pytest_timeout
from httpx2._config import DEFAULT_TIMEOUT_CONFIG
from hypothesis import HealthCheck, settings
from patience import factor, patient

# What is imported stays to the end, so that a garbage collection meanwhile finds nothing.
gc.disable()

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As a shell starts what it runs in the background; the programs under test would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


# How long it takes to make an example depends on the machine, and the first text makes a table of all characters.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


def pytest_configure(config: pytest.Config) -> None:
    # Before there are workers, which inherit all of this. No test speaks TLS, but every HTTP client reads the
    # certificates that it would trust: those of the system are many, and take 30 ms of CPU time.
    os.environ["SSL_CERT_FILE"] = str(Path(__file__).with_name("support") / "certificate.pem")
    # Gateways that tests start as programs: a store in files takes a third of a second of CPU time. Its own tests say
    # where it is.
    os.environ["ENVPORT_STORE"] = "memory"
    factor(config.getoption("numprocesses", None) or 1)
    # httpx's own limit is five seconds, which tests do not override one by one.
    limits = DEFAULT_TIMEOUT_CONFIG
    limits.connect = limits.read = limits.write = limits.pool = patient(5)


def pytest_collection_finish() -> None:
    # To look through all that has been imported takes half a second of CPU time, and a check of an environment collects
    # garbage twice.
    gc.freeze()
    gc.enable()


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    # The same holds for what a file's tests have imported: TRL's trainer collects garbage at the end of each training.
    if nextitem is not None and nextitem.path != item.path:
        gc.collect()
        gc.freeze()


def pytest_sessionfinish() -> None:
    # Plugins look through what there is.
    gc.unfreeze()


def pytest_report_header() -> str:
    return f"patience: limits are {factor():.1f} x those of a quiet machine"


def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> Any:
    """A test may take as much longer as everything does; pytest-timeout's own hook then has nothing left to do."""
    return pytest_timeout.pytest_timeout_set_timer(item, settings._replace(timeout=patient(settings.timeout)))
