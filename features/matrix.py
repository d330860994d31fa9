"""From candidate columns to the feature matrix."""

from __future__ import annotations

from itertools import groupby
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from ..generator import Columns, Problem
from ..generator.columns import size, take
from . import duration, memory, pipeline, resources, structural, work
from .decomposition import decompose
from .hardware import Hardware, get_hardware
from .schema import Feature
from .terms import Value, build_terms

FeatureSet = Literal["structural", "full"]

_FEATURES: Final[dict[str, tuple[Feature, ...]]] = {
    "structural": structural.FEATURES,
    "full": (
        *structural.FEATURES,
        *work.FEATURES,
        *memory.FEATURES,
        *resources.FEATURES,
        *pipeline.FEATURES,
        *duration.FEATURES,
    ),
}


_CHUNK: Final = 8192
"""Rows computed at a time: their temporaries stay in the CPU's caches."""


def _logarithm_runs(features: tuple[Feature, ...]) -> tuple[slice, ...]:
    """Runs of adjacent ``log2_`` features, as slices."""
    runs, start = [], 0
    for is_log, members in groupby(features, key=lambda feature: feature.name.startswith("log2_")):
        end = start + len(list(members))
        if is_log:
            runs.append(slice(start, end))
        start = end
    return tuple(runs)


_LOGARITHMS: Final = {name: _logarithm_runs(features) for name, features in _FEATURES.items()}


def describe_features(feature_set: str = "full") -> list[Feature]:
    """Describe the columns of the feature matrix, in order: name, unit, group and source of each.

    Raises
    ------
    ValueError
        If the feature set is unknown.
    """
    if feature_set not in _FEATURES:
        raise ValueError(f"feature set {feature_set!r} is unknown; use one of {', '.join(_FEATURES)}")
    return list(_FEATURES[feature_set])


def feature_names(feature_set: str = "full") -> tuple[str, ...]:
    """Names of the columns of the feature matrix, in order.

    Raises
    ------
    ValueError
        If the feature set is unknown.
    """
    return tuple(feature.name for feature in describe_features(feature_set))


def featurize(
    columns: Columns, problem: Problem, hardware: str | Hardware, feature_set: str = "full"
) -> NDArray[np.float32]:
    """Compute the features of candidates on a problem.

    Every feature follows from its row, the problem and the hardware's description; nothing measured about a kernel
    enters. :func:`describe_features` gives the unit, group and source of each.

    Parameters
    ----------
    columns
        Candidate rows. Rows without launch columns mean the default launch, not swapped.
    problem
        The problem as the caller states it; swapped rows are computed on (N, M, K).
    hardware
        The GPU or its name.
    feature_set
        ``"structural"`` or ``"full"``.

    Returns
    -------
    NDArray[np.float32]
        Shape (rows, features), Fortran order, all finite.

    Raises
    ------
    UnknownHardware
        If the hardware is unknown or has no peak for the problem's element type.
    ValueError
        If the feature set is unknown.
    """
    described, logarithms = describe_features(feature_set), _LOGARITHMS[feature_set]
    gpu, rows = get_hardware(hardware), size(columns)
    matrix = np.empty((len(described), rows), dtype=np.float32)
    for start in range(0, rows, _CHUNK):
        part = slice(start, start + _CHUNK)
        values = _compute(take(columns, part) if rows > _CHUNK else columns, problem, gpu, feature_set)
        for feature, row in zip(described, matrix[:, part], strict=True):
            row[:] = values[feature.name]
    for run in logarithms:
        np.log2(matrix[run], out=matrix[run])
    return matrix.T


def _compute(columns: Columns, problem: Problem, hardware: Hardware, feature_set: str) -> dict[str, Value]:
    """Compute all features of some rows by name, those called ``log2_x`` as x."""
    terms = build_terms(columns, problem, hardware)
    values = structural.compute(terms)
    if feature_set == "full":
        spread = decompose(terms)
        traffic = memory.estimate_traffic(terms, spread)
        pace = pipeline.estimate_pace(terms, spread, traffic)
        values.update(work.compute(terms, spread))
        values.update(memory.compute(terms, spread, traffic))
        values.update(resources.compute(terms))
        values.update(pipeline.compute(terms, spread, pace))
        values.update(duration.compute(terms, spread, traffic, pace))
    return values
