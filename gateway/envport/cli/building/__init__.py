"""What `envport build` and `envport init` put around an environment, so that it runs in a container."""
