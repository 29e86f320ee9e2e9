"""What consumes environments: training and evaluation frameworks."""
