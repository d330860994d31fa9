"""All studies, in the order of the page."""

from __future__ import annotations

from typing import Final

from . import study_capacity, study_data, study_features, study_groups, study_sampling
from .studies import Study

STUDIES: Final[dict[str, Study]] = {
    module.STUDY.name: module.STUDY
    for module in (study_features, study_groups, study_capacity, study_data, study_sampling)
}
"""By name."""
