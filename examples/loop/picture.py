"""The three rewards beside each other, and how the third was learned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path


def draw(rewards: Mapping[str, float], curve: Sequence[float], file: Path) -> None:
    """Draw them.

    Args:
        rewards: Mean reward of each stage.
        curve: Mean reward of each batch of GRPO.
        file: The image to write.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (stages, training) = pyplot.subplots(1, 2, figsize=(9, 3.6), width_ratios=(2, 3), sharey=True)
    bars = stages.bar(list(rewards), list(rewards.values()), color=["#9aa5b1", "#5b8def", "#2a9d5c"])
    stages.bar_label(bars, fmt="%.2f", padding=2)
    for axes in (stages, training):
        axes.axhline(1, color="gray", linestyle=":", linewidth=1)
    stages.set(
        ylabel="mean reward", ylim=(min(0, *rewards.values(), *curve) - 0.05, 1.12), title="Starts that nobody has seen"
    )
    training.plot(range(1, len(curve) + 1), curve, color="#2a9d5c")
    training.set(xlabel="batch of rollouts", title="GRPO, from the fine-tuned model")
    figure.tight_layout()
    figure.savefig(file, dpi=120)
    pyplot.close(figure)
