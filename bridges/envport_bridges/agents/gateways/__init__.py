"""Where an environment is played: gateways that run already, and gateways that are started for it."""
