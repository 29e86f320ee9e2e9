"""Episodes on several machines: each machine has a host that runs them, and every replica reaches every host."""
