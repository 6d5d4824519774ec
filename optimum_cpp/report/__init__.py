"""What a run found, drawn for people."""

from .figures import draw_figures

__all__ = ["draw_figures"]
