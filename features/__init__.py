"""What a kernel does to the hardware: GPU descriptions and static estimates as a feature matrix."""

from __future__ import annotations

from .hardware import HARDWARE, Hardware, get_hardware
from .matrix import FeatureSet, describe_features, feature_names, featurize
from .schema import Feature

__all__ = [
    "HARDWARE",
    "Feature",
    "FeatureSet",
    "Hardware",
    "describe_features",
    "feature_names",
    "featurize",
    "get_hardware",
]
