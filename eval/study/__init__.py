"""Ablations of the rankers: resumable studies that list cells, run them once, and draw what came out."""

from __future__ import annotations

from .data import StudyData, load_data
from .options import Options, make_options
from .page import make_page
from .registry import STUDIES
from .runner import StudyFailed, run_cells
from .store import Store

__all__ = [
    "STUDIES",
    "Options",
    "Store",
    "StudyData",
    "StudyFailed",
    "load_data",
    "make_options",
    "make_page",
    "run_cells",
]
