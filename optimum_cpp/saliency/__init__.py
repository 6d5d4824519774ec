"""Calibration saliency: squared per-example gradients of nonconformity scores."""

from .gradients import squared_gradients

__all__ = ["squared_gradients"]
