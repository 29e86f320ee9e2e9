"""The benchmark: the cost of a call, an opened episode and an idle episode, compared with minimal servers."""

from envport.bench.measure import MeasuringPlan
from envport.bench.report import Report
from envport.bench.run import run_bench

__all__ = ["MeasuringPlan", "Report", "run_bench"]
