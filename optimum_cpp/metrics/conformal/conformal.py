"""What `evaluate.load` opens: it takes the one metric of this file, whose class lives in the package."""

from optimum_cpp.metrics.metric import ConformalMetric  # noqa: F401
