"""Exceptions of the project. Each message says what is wrong and what would be right."""

from __future__ import annotations


class CutlassRankerError(Exception):
    """Base of every exception that this project raises on purpose."""


class InvalidProblem(CutlassRankerError, ValueError):
    """A problem size, layout or type that makes no sense."""


class UnsupportedProblem(CutlassRankerError, ValueError):
    """A sensible problem that no SM90 TMA kernel of this project can take (16-byte rule)."""


class InvalidConfig(CutlassRankerError, ValueError):
    """A kernel configuration, launch or procedural name outside what CUTLASS SM90 offers."""


class InvalidCandidates(CutlassRankerError, ValueError):
    """A list of candidates that is empty, of the wrong kind, or in which nothing fits the problem."""


class UnknownHardware(CutlassRankerError, ValueError):
    """A GPU name that the project has no description of."""


class DataError(CutlassRankerError):
    """Tables that are missing, damaged or do not belong together."""


class ModelMismatch(CutlassRankerError):
    """A saved model that does not match this code (features, format, version)."""


class MissingDependency(CutlassRankerError, ImportError):
    """An optional dependency is needed for this and is not installed; the message names the extra."""


class BuildError(CutlassRankerError):
    """The compiler, the headers or the GPU tool chain is missing or unusable."""


class MeasurementError(CutlassRankerError):
    """Measuring cannot start or go on: no SM90 GPU, no profiler library, no compiled kernels."""
