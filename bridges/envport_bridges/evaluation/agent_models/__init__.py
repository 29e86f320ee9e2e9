"""The models of evaluated agents: those that are served already, and those that an evaluation serves for itself."""
