from __future__ import annotations

import numpy as np
import pytest
import torch

from optimum_cpp.saliency import Scale, importance

WEIGHT = np.array([[0.5, -2.0, 0.0], [3.0, -0.25, 1e-3]])
MOMENT = np.array([[4.0, 0.25, 7.0], [0.0, 1e-6, 9.0]])
EXPECTED = {
    "square": [[1.0, 1.0, 0.0], [0.0, 6.25e-8, 9e-6]],  # theta^2 E[g^2]
    "root": [[1.0, 1.0, 0.0], [0.0, 2.5e-4, 3e-3]],  # |theta| sqrt(E[g^2])
    "absolute": [[2.0, 0.5, 0.0], [0.0, 2.5e-7, 9e-3]],  # |theta| E[|g|]
}


@pytest.mark.parametrize("scale", ["square", "root", "absolute"])
def test_values_worked_out_on_paper(scale: Scale) -> None:
    weight, moment = torch.from_numpy(WEIGHT), torch.from_numpy(MOMENT)
    kept = weight.clone(), moment.clone()
    np.testing.assert_allclose(importance(weight, moment, scale), EXPECTED[scale], rtol=1e-14)
    assert torch.equal(weight, kept[0]) and torch.equal(moment, kept[1])


def test_of_gradients_themselves() -> None:
    """theta^2 E[g^2] = E[(theta g)^2]; its root is the RMS of theta g, and SNIP's value lies below that."""
    generator = torch.Generator().manual_seed(0)
    gradients = torch.randn(50, 4, 6, generator=generator, dtype=torch.float64)
    weight = torch.randn(4, 6, generator=generator, dtype=torch.float64)
    products = (weight * gradients).numpy()
    square = importance(weight, gradients.square().mean(0), "square")
    root = importance(weight, gradients.square().mean(0), "root")
    absolute = importance(weight, gradients.abs().mean(0), "absolute")
    np.testing.assert_allclose(square, (products**2).mean(0), rtol=1e-12)
    np.testing.assert_allclose(root, np.sqrt((products**2).mean(0)), rtol=1e-12)
    np.testing.assert_allclose(absolute, np.abs(products).mean(0), rtol=1e-12)
    assert (absolute < root).all()


def test_root_is_the_square_root_of_square() -> None:
    generator = torch.Generator().manual_seed(1)
    weight, moment = torch.randn(5, 9, generator=generator), torch.rand(5, 9, generator=generator)
    torch.testing.assert_close(importance(weight, moment, "root").square(), importance(weight, moment, "square"))
