"""Writes the regret report (HTML, Markdown, JSON) from measured data: no GPU, no network, the same bytes every time."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..datasets import Group, Tables, groups, load
from ..features import Hardware, get_hardware
from ..generator import DataError, MissingDependency, load_catalogue
from ..models import AnalyticScore, load_model, model_names
from .evaluation import evaluate
from .methods import BaselineMethod, Method, NvmmhMethod, NvmmhVariants, RandomPick, RankerMethod, StaticBest
from .ptxbench.baseline import summarise, summarise_shipped
from .summary import build_summary

if TYPE_CHECKING:
    from ..models import Ranker

PLOT_TITLES: Final = {
    "regret_bars": "Mean regret of every method with 95% bootstrap intervals",
    "regret_cdf": "Cumulative distribution of regret over the evaluation problems",
    "speedup": "Sorted speed-ups of the default model over each baseline",
    "ceiling": "Speed-up of the picks and of the oracle over each baseline, by kind and source of problem",
    "regimes": "Mean regret in per cent by kind and source of problem (number of problems in brackets)",
    "best_of_k": "Mean regret left and share of problems within 1% of the oracle after measuring k proposals",
    "reliability": "Mean regret found against mean expected regret, with 95% intervals",
    "ptxbench": "PTXBench GEMM: speed-up over cuBLAS of the selector's candidates, retrieved ones and the oracle, by M",
}


def make_report(
    out_dir: str | Path,
    tables: Tables | None = None,
    models: Sequence[str | Path | Ranker] | None = None,
    hardware: str | Hardware = "h200",
    seed: int = 0,
    ptxbench: str | Path | None = None,
) -> dict[str, Any]:
    """Evaluate rankers and baselines on the evaluation groups and write ``report.{html,md,json}`` and ``plots/*.svg``.

    Parameters
    ----------
    out_dir
        Folder to write to; made if it does not exist.
    tables
        Measured data, all of whose kernels are ranked. Unless given, the shipped data, of which the kernels of the
        shipped catalogue are ranked; the others may still be an oracle.
    models
        Rankers, names of shipped models or paths of saved ones; the first is the one that speed-ups are stated for.
        All shipped models, the default first, unless given.
    hardware
        The GPU that features are computed for.
    seed
        Seed of every bootstrap.
    ptxbench
        Folder of PTXBench's evaluated candidates, made by :func:`~.ptxbench.collect.collect`. The shipped ones unless
        given, but none if only tables are given.

    Returns
    -------
    dict
        The content of ``report.json``.

    Raises
    ------
    MissingDependency
        If the ``report`` extra is not installed.
    DataError
        If the tables hold no evaluation group with a measured oracle, or there is no model.
    """
    try:
        import jinja2

        from . import plots
    except ImportError as error:
        raise MissingDependency(
            f"a report needs {error.name}, which is not installed: pip install 'cutlass-ranker[report]'"
        ) from error

    section = summarise(Path(ptxbench)) if ptxbench is not None else summarise_shipped() if tables is None else {}
    catalogue = load_catalogue() if tables is None else None
    tables = load() if tables is None else tables
    hardware = get_hardware(hardware)
    measured = groups(tables, catalogue=catalogue)
    evaluated, training = (_with_oracle([g for g in measured if g.split == split]) for split in ("eval", "train"))
    if not evaluated:
        raise DataError("the tables hold no evaluation problem with a measured candidate")
    rankers = [RankerMethod(ranker, hardware) for ranker in _load_models(models)]
    baselines = _baselines(tables, training, hardware)
    evaluation = evaluate(evaluated, [*rankers, *baselines])
    report = {**build_summary(evaluation, tables, rankers[0].name, hardware.name, seed), "ptxbench": section}
    drawn = plots.draw_all(evaluation, report)

    out = Path(out_dir)
    (out / "plots").mkdir(parents=True, exist_ok=True)
    (out / "report.json").write_text(_json(report), encoding="utf-8")
    for name, svg in drawn.items():
        (out / "plots" / f"{name}.svg").write_text(svg, encoding="utf-8")
    templates = files(__package__).joinpath("templates")
    for kind in ("html", "md"):
        environment = jinja2.Environment(
            loader=jinja2.FunctionLoader(lambda name: templates.joinpath(name).read_text(encoding="utf-8")),
            autoescape=kind == "html",
            trim_blocks=True,
            lstrip_blocks=True,
            undefined=jinja2.StrictUndefined,
        )
        environment.filters.update(pct=_pct, num=_num, ratio=_ratio, span=_span, data_uri=_data_uri)
        text = environment.get_template(f"report.{kind}.j2").render(r=report, plots=drawn, plot_titles=PLOT_TITLES)
        (out / f"report.{kind}").write_text(text.rstrip() + "\n", encoding="utf-8")
    return report


def _with_oracle(candidates: Sequence[Group]) -> list[Group]:
    """Keep the groups that have an oracle: a candidate timed in full."""
    return [group for group in candidates if np.any(~group.coarse)]


def _load_models(models: Sequence[str | Path | Ranker] | None) -> list[Ranker]:
    """Load what was asked for, or every shipped model with the default first."""
    if models is None:
        default = load_model("default")
        others = [load_model(name) for name in model_names()]
        return [default, *(ranker for ranker in others if ranker.name != default.name)]
    loaded = [load_model(model) if isinstance(model, (str, Path)) else model for model in models]
    if not loaded:
        raise DataError("there is no model to evaluate; give at least one")
    return loaded


def _baselines(tables: Tables, training: Sequence[Group], hardware: Hardware) -> list[Method]:
    """Everything that the rankers are compared with."""
    variants = NvmmhVariants(tables)
    return [
        NvmmhMethod(variants, best=True),
        NvmmhMethod(variants, best=False),
        BaselineMethod(tables, "cublaslt_first"),
        BaselineMethod(tables, "cublaslt_best"),
        StaticBest(training),
        RankerMethod(AnalyticScore(), hardware, name="analytic", title="analytic score", kind="simple"),
        RandomPick(),
    ]


def _json(report: dict[str, Any]) -> str:
    """Write a section a line, and within a list an entry a line: small, and readable with common tools."""
    sections = []
    for key, value in report.items():
        if isinstance(value, list):
            entries = ",\n  ".join(json.dumps(entry, allow_nan=False, ensure_ascii=False) for entry in value)
            text = f"[\n  {entries}\n ]" if value else "[]"
        else:
            text = json.dumps(value, allow_nan=False, ensure_ascii=False)
        sections.append(f" {json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(sections) + "\n}\n"


def _pct(value: float | None, digits: int = 1) -> str:
    """Format a fraction as a percentage."""
    return "–" if value is None else f"{100 * value:.{digits}f}%".replace("-", "−")


def _num(value: float | None, digits: int = 1) -> str:
    """Format a number with a thousands separator."""
    return "–" if value is None else f"{value:,.{digits}f}"


def _ratio(value: float | None, digits: int = 2) -> str:
    """Format a speed-up."""
    return "–" if value is None else f"{value:.{digits}f}×"


def _span(bounds: Sequence[float | None], kind: str = "pct", digits: int = 2) -> str:
    """Format an interval of percentages, or of ratios or times with a number of digits."""
    low, high = bounds
    if low is None or high is None:
        return ""
    if kind == "ratio":
        return f"{low:.{digits}f}–{high:.{digits}f}"
    return f"{100 * low:.1f}{' to ' if low < 0 else '–'}{100 * high:.1f}".replace("-", "−")


def _data_uri(svg: str) -> str:
    """Turn an SVG document into the address of an image that a page carries itself."""
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()
