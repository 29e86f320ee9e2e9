"""The command line: `envport serve`, `attach`, `play` and the rest."""

from envport.cli.application import main

__all__ = ["main"]
