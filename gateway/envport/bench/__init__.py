"""The bench: what a call, an opened episode and an idle one cost the gateway, beside the floors, in one run."""

from envport.bench.measure import MeasuringPlan
from envport.bench.report import Report
from envport.bench.run import run_bench

__all__ = ["MeasuringPlan", "Report", "run_bench"]
