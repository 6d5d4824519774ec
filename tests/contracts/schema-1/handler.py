"""Serves prediction sets: EndpointHandler(folder)({"inputs": "Some text"})."""

from optimum_cpp.serving import EndpointHandler

__all__ = ["EndpointHandler"]
