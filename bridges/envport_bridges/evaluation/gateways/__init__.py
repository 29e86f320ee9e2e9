"""Where an environment is evaluated: gateways that run already, and those that an evaluation starts for itself."""
