"""`python -m envport.bench`."""

import typer

from envport.bench.command import bench

if __name__ == "__main__":
    typer.run(bench)
