"""Calibration saliency: which labels, the moments of their scores' gradients, and importance made of them."""

from .gradients import EXACT, Estimator, gradient_moments
from .importance import Saliency, Scale, importance
from .recorder import Inseparable, Moment
from .regional import regional_moments
from .stored import StoredMoments
from .targets import (
    Targets,
    ThresholdBand,
    all_labels,
    check_threshold,
    near_threshold,
    threshold_band,
    top_labels,
    true_labels,
)

__all__ = [
    "EXACT",
    "Estimator",
    "Inseparable",
    "Moment",
    "Saliency",
    "Scale",
    "StoredMoments",
    "Targets",
    "ThresholdBand",
    "all_labels",
    "check_threshold",
    "gradient_moments",
    "importance",
    "near_threshold",
    "regional_moments",
    "threshold_band",
    "top_labels",
    "true_labels",
]
