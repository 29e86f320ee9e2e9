"""A plugin of pytest that writes how each test went, and how long it took, for `touched.py`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    # Each worker, and what has distributed the tests to them, would tell of it.
    if "PYTEST_XDIST_WORKER" not in os.environ:
        with Path(os.environ["TOUCHED_TOLD"]).open("a") as told:
            told.write(json.dumps([report.nodeid, report.outcome, report.duration]) + "\n")
