"""Whole agents: running their programs, and the model endpoint through which they are trained and evaluated."""
