"""Can the reward of an environment be trusted? `envport audit`."""
