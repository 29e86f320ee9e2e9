"""What the seeds of a game showed: lines, a plot and a file of numbers."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median

from lessons import Lesson


@dataclass
class Result:
    """What one seed showed."""

    seed: int
    before: float
    after: float
    unseen_before: float
    unseen_after: float
    curve: list[float] = field(default_factory=list)
    seconds: float = 0.0
    environment_share: float | None = None
    episodes: int = 0
    lost: int = 0


def tenths(curve: list[float]) -> str:
    """Mean of each tenth of a curve."""
    parts = min(10, len(curve))
    bounds = [len(curve) * part // parts for part in range(parts + 1)]
    return " ".join(f"{fmean(curve[start:end]):.2f}" for start, end in pairwise(bounds))


def describe(result: Result) -> str:
    """A line on a seed."""
    share = result.environment_share
    environment = f", environment {share:.1%} of a step's time" if share is not None else ""
    line = (
        f"seed {result.seed}: won {result.before:.2f} -> {result.after:.2f} on held-out seeds "
        f"({result.unseen_before:.2f} -> {result.unseen_after:.2f} on tasks never seen), "
        f"{result.seconds:.0f} s{environment}; by tenths: "
    ) + tenths(result.curve)
    if result.lost:
        line += f"\n        {result.lost} of {result.episodes} episodes were lost to faults: none of them was scored"
    return line


def report(lesson: Lesson, results: list[Result], output: Path) -> None:
    """Print a line for each seed and one for their median, draw them, and keep the numbers."""
    for result in results:
        print(describe(result))
    middle = [median(batch) for batch in zip(*(result.curve for result in results), strict=True)]
    before, after = median(one.unseen_before for one in results), median(one.unseen_after for one in results)
    print(f"median of {len(results)}: won {before:.2f} -> {after:.2f} on tasks never seen; by tenths: {tenths(middle)}")
    draw(lesson, results, middle, output / "curve.png")
    (output / "curve.json").write_text(json.dumps([asdict(result) for result in results]))
    print(f"curve: {output / 'curve.png'}")


def draw(lesson: Lesson, results: list[Result], middle: list[float], file: Path) -> None:
    """Draw each seed thinly and the median thickly."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4))
    for result in results:
        axes.plot(range(1, len(result.curve) + 1), result.curve, alpha=0.6, linewidth=0.8, label=f"seed {result.seed}")
    axes.plot(range(1, len(middle) + 1), middle, color="black", linewidth=3, label="median")
    axes.axhline(lesson.after, color="gray", linestyle=":", linewidth=1)
    axes.set(
        xlabel="batch of 64 rollouts",
        ylabel="games won in training",
        ylim=(0, 1.02),
        title=f"{lesson.game.capitalize()}, learned through the gateway",
    )
    axes.legend(loc="lower right", fontsize="small", ncols=2)
    figure.tight_layout()
    figure.savefig(file, dpi=120)
    pyplot.close(figure)
