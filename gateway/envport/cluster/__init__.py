"""Episodes on several machines: a host on each one runs them, and any replica of the gateway reaches any host."""
