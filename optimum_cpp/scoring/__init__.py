"""From a model and texts to label log-probabilities, and from those to nonconformity scores."""

from .classifiers import ClassifierScorer
from .examples import LabelledBatch, LabelScorer, TargetBatch
from .transforms import Score, ScoreTransform, fit_transform
from .verbalizers import VerbalizerScorer

__all__ = [
    "ClassifierScorer",
    "LabelScorer",
    "LabelledBatch",
    "Score",
    "ScoreTransform",
    "TargetBatch",
    "VerbalizerScorer",
    "fit_transform",
]
