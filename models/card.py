"""The model card of a saved ranker, written from its manifest alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from .store import CARD

_KINDS: Final = {
    "xgboost": "gradient-boosted trees (XGBoost)",
    "mlp": "multilayer perceptron",
    "ridge": "ridge regression",
    "ensemble": "the mean of several rankers",
}
_OBJECTIVES: Final = {
    "lambdarank": "LambdaRank (NDCG-weighted pairs)",
    "ranknet": "RankNet (unweighted pairs)",
    "mse": "least squares on log relative speed",
}
_ROWS: Final = (
    ("groups", "problems", "{:.0f}"),
    ("mean_regret", "mean regret", "{:.2%}"),
    ("median_regret", "median regret", "{:.2%}"),
    ("p95_regret", "95th percentile of regret", "{:.2%}"),
    ("max_regret", "largest regret", "{:.2%}"),
    ("within_1", "within 1% of the fastest", "{:.1%}"),
    ("within_5", "within 5% of the fastest", "{:.1%}"),
    ("within_10", "within 10% of the fastest", "{:.1%}"),
    ("top1", "picked the fastest", "{:.1%}"),
    ("mean_expected_regret", "mean regret that the model expected", "{:.2%}"),
)
_CATALOGUE: Final = (
    " In both columns, what is chosen from is the deterministic launches of the catalogue `{}`, and the fastest is "
    "that of all measured kernels."
)
_COLUMNS: Final = (("cross_validation", "cross-validation"), ("evaluation", "evaluation problems"))


def render_card(manifest: Mapping[str, Any]) -> str:
    """Return the card as Markdown. Every number in it is read from the manifest."""
    data, training, metrics = manifest["data"], manifest["training"], manifest["metrics"]
    columns = [(key, title) for key, title in _COLUMNS if key in metrics]
    table = ["| | " + " | ".join(title for _, title in columns) + " |", "|---|" + "---|" * len(columns)]
    for key, title, form in _ROWS:
        if any(key in metrics[column] for column, _ in columns):
            cells = [form.format(metrics[column][key]) if key in metrics[column] else "" for column, _ in columns]
            table.append(f"| {title} | " + " | ".join(cells) + " |")
    campaigns = [
        f"- `{item['name']}`: {item['gpu']}, driver {item['driver']}, CUDA {item['cuda']}, CUTLASS {item['cutlass']}, "
        f"protocol {item['protocol_version']}, started {item['started']}"
        for item in data.get("campaigns", ())
    ]
    rounds = f" {training['rounds']} boosting rounds, chosen by cross-validation." if "rounds" in training else ""
    lines = [
        f"# Model card: {manifest['name']}",
        "",
        f"Ranks CUTLASS SM90 GEMM kernels and launches for a problem: {_what(manifest)}.",
        "",
        "## Use",
        "",
        f"Made for choosing among kernels of this package's spaces on the hardware `{manifest['hardware']}`. Scores "
        "order the candidates of one problem; they are not times, and scores of different problems cannot be compared. "
        "Expected regret comes from a table fitted to held-out problems.",
        "",
        "## Data",
        "",
        f"{data['training_groups']} training problems ({training['rows']} training rows); "
        f"{data['evaluation_groups']} evaluation problems, which took no part in any choice.",
        *(["", *campaigns] if campaigns else []),
        "",
        "## Measured quality",
        "",
        "Regret = 1 − fastest measured time / time of the pick, under the deployed rule: the best kernel by the score "
        "of its default launch, then the best-scored of its measured launches. Cross-validation leaves whole shapes "
        f"out ({training['config']['folds']} folds) and also chose the training length, so it is slightly optimistic."
        + (_CATALOGUE.format(data["catalogue"]) if data.get("catalogue") else ""),
        "",
        *table,
        "",
        "## Limits",
        "",
        f"- Measured on one kind of GPU (`{manifest['hardware']}`); of others it knows only the description.",
        "- The fastest measured candidate is the fastest of those measured, not of all kernels CUTLASS can make.",
        "- Problems far from the training shapes, other element types and fused epilogues are extrapolation.",
        "",
        "## Training",
        "",
        f"Feature set `{manifest['feature_set']}` ({len(manifest['features'])} columns), seed "
        f"{training['config']['seed']}, code `{manifest['commit']}`.{rounds} "
        "The full configuration is in `manifest.json`.",
    ]
    return "\n".join(lines) + "\n"


def _what(manifest: Mapping[str, Any]) -> str:
    """Describe family and objective, of an ensemble those of its members."""
    if manifest["kind"] == "ensemble":
        members = [_what(member) for member in manifest["members"]]
        if not manifest.get("rescore"):
            return f"{_KINDS['ensemble']} ({'; '.join(members)})"
        return (
            f"a first stage ({members[0]}) orders all candidates, and {_KINDS['ensemble']} ({'; '.join(members[1:])}) "
            f"the best {manifest['rescore']} of them again"
        )
    return f"{_KINDS[manifest['kind']]}, trained with {_OBJECTIVES[manifest['objective']]}"


def write_card(manifest: Mapping[str, Any], folder: Path) -> Path:
    """Write ``CARD.md`` into a model's folder and return its path."""
    path = folder / CARD
    path.write_text(render_card(manifest), encoding="utf-8")
    return path
