"""The metrics of a gateway, for Prometheus."""

from envport.metrics.exposition import Metrics

__all__ = ["Metrics"]
