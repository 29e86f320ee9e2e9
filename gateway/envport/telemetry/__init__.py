"""What a gateway tells of itself beside its metrics: log lines, trace spans, and whom and what they are about."""
