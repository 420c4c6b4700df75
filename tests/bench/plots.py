"""Draws what was measured, each as PNG and SVG in ``bench-plots``. Matplotlib is an optional extra."""

import statistics
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from borgish.sim.pack.arrive import Arrived

FOLDER = Path(__file__).parents[2] / "bench-plots"
Published = Mapping[str, tuple[Sequence[float], float]]


def plot_arrived(found: Mapping[tuple[str, str], Sequence[Arrived]], published: Published) -> None:
    """Draw what is allocated over what is asked for, a curve a policy, a picture a trace."""
    if not _can_plot():
        return
    lists = list(dict.fromkeys(trace for trace, _ in found))
    figure, axes = _subplots(1, len(lists), (4.2 * len(lists), 4.2))
    for place, (trace, axis) in enumerate(zip(lists, axes, strict=True)):
        for number, policy in enumerate(dict.fromkeys(policy for each, policy in found if each == trace)):
            curve = _mean_curve(found[trace, policy])
            axis.plot(list(curve), list(curve.values()), label=policy, color=f"C{number}")
            if policy in published:
                axis.plot([100], [published[policy][0][place]], "x", color=f"C{number}")
        axis.set(title=trace, xlabel="devices asked for, %", xlim=(70, 130), ylim=(70, 100))
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("devices allocated, %  (x: published)")
    axes[-1].legend(loc="lower right")
    _save(figure, "arrive")


def _mean_curve(runs: Sequence[Arrived]) -> dict[int, float]:
    values: dict[int, list[float]] = {}
    for run in runs:
        for step in run.steps:
            values.setdefault(step.requested_percent, []).append(100 * step.allocated)
    return {percent: statistics.mean(values[percent]) for percent in sorted(values)}


def plot_compacted(
    machines: Mapping[str, Sequence[int]], volume: Sequence[int], configurations: Sequence[int]
) -> None:
    """Draw how many machines each policy needs, the 90th percentile and the range, beside the bounds."""
    if not _can_plot():
        return
    figure, (axis,) = _subplots(1, 1, (6.5, 4.2))
    for place, (policy, needed) in enumerate(machines.items()):
        result = sorted(needed)[int(0.9 * len(needed))]
        error = [[result - min(needed)], [max(needed) - result]]
        axis.bar(place, result, yerr=error, capsize=4, label=policy, color=f"C{place}")
    for bound, style, label in ((volume, ":", "volume bound"), (configurations, "--", "configuration bound")):
        axis.axhline(sorted(bound)[int(0.9 * len(bound))], linestyle=style, color="black", label=label)
    lowest = min(volume)
    axis.set(xticks=range(len(machines)), xticklabels=list(machines), ylabel="machines needed")
    axis.set_ylim(bottom=0.95 * lowest)
    axis.legend()
    _save(figure, "compact")


def _can_plot() -> bool:
    if find_spec("matplotlib") is not None:
        return True
    print("no plots: matplotlib is missing; scripts/env bench adds it", file=sys.stderr)
    return False


def _subplots(rows: int, columns: int, size: tuple[float, float]) -> tuple[Any, list[Any]]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Drawing

    drawing = Drawing(figsize=size, layout="constrained")
    FigureCanvasAgg(drawing)
    return drawing, list(drawing.subplots(rows, columns, squeeze=False).flat)


def _save(drawing: Any, name: str) -> None:
    FOLDER.mkdir(exist_ok=True)
    for ending in ("png", "svg"):
        file = FOLDER / f"pack-{name}.{ending}"
        drawing.savefig(file, metadata={"Date": None} if ending == "svg" else None)
        print(f"drawn: {file}", file=sys.stderr)
