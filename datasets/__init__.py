"""What was measured: plans, compile farm, GPU runner, tables, groups, labels and the shipped data.

Names are imported on first use, so that importing this package stays cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import labels
    from .grouping import Group, clock_factors, groups, training_groups
    from .info import Finding, Info, data_check, data_info
    from .merging import merge
    from .plan import (
        Plan,
        make_gap_plan,
        make_plan,
        make_repeat_plan,
        make_retake_plan,
        make_study_plan,
        nvmmh_kernels,
        read_plan,
        write_plan,
    )
    from .tables import Tables, best_time, load

__all__ = [
    "Finding",
    "Group",
    "Info",
    "Plan",
    "Tables",
    "best_time",
    "clock_factors",
    "data_check",
    "data_info",
    "groups",
    "labels",
    "load",
    "make_gap_plan",
    "make_plan",
    "make_repeat_plan",
    "make_retake_plan",
    "make_study_plan",
    "merge",
    "nvmmh_kernels",
    "read_plan",
    "training_groups",
    "write_plan",
]

_HOMES = {
    "Finding": "info", "Info": "info", "data_check": "info", "data_info": "info",
    "Group": "grouping", "clock_factors": "grouping", "groups": "grouping", "training_groups": "grouping",
    "Plan": "plan", "make_gap_plan": "plan", "make_plan": "plan", "make_repeat_plan": "plan",
    "make_retake_plan": "plan", "make_study_plan": "plan", "nvmmh_kernels": "plan", "read_plan": "plan",
    "write_plan": "plan",
    "Tables": "tables", "best_time": "tables", "load": "tables",
    "merge": "merging",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "labels":
        return import_module(".labels", __name__)
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value
