"""What a gateway counts and measures, for Prometheus."""

from envport.metrics.exposition import Metrics

__all__ = ["Metrics"]
