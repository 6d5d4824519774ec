"""What a weight's removal would cost, from the moment of its gradient (CPP paper, Eq. 6, and its kin)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch

Scale = Literal["square", "root", "absolute"]


@dataclass(frozen=True)
class Saliency:
    """Moments of gradients and how importance is made of them.

    Attributes:
        moments: (d_out, d_in) by matrix name; squares for the scales `square` and `root`, absolute values
            for `absolute`.
        scale: see `importance`.
    """

    moments: Mapping[str, torch.Tensor]
    scale: Scale


def importance(weight: torch.Tensor, moment: torch.Tensor, scale: Scale) -> torch.Tensor:
    """I_cal of a matrix's weights, (d_out, d_in).

    Args:
        weight: (d_out, d_in) the weights theta.
        moment: (d_out, d_in) E[g^2], or E[|g|] for `absolute`.
        scale: `square`, theta^2 E[g^2] (CPP paper, Eq. 6); `root`, |theta| sqrt(E[g^2]), the scale of
            Wanda's importance; `absolute`, E[|theta g|] (SNIP, Lee et al. 2019).
    """
    if scale == "square":
        return weight.square() * moment
    return weight.abs() * (moment.sqrt() if scale == "root" else moment)
