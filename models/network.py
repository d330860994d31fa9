"""NumPy inference of the multilayer perceptrons (and of linear models, which are networks without hidden layers)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..generator.errors import ModelMismatch
from .base import Floats, Matrix, Standardizer

_BLOCK: Final = 320
"""Rows evaluated together: small enough for the layers' outputs to stay in cache and in already mapped memory."""

Layer = tuple[Matrix, Matrix]
"""Weight (outputs, inputs) and bias (outputs,), float32, as torch stores them."""


class Network:
    """The mean of one or more perceptrons with ReLU between their layers, behind one standardizer.

    Parameters
    ----------
    standardizer
        Transform of the features, applied first.
    members
        Layers of each perceptron, first to last; the last one has a single output.

    Raises
    ------
    ModelMismatch
        If there is no member, or the shapes of successive layers do not fit each other.
    """

    def __init__(self, standardizer: Standardizer, members: Sequence[Sequence[Layer]]) -> None:
        self.standardizer = standardizer
        self.members = tuple(tuple(layers) for layers in members)
        self.features = len(standardizer.mean)
        if not self.members:
            raise ModelMismatch("a network needs at least one member")
        for layers in self.members:
            widths = [self.features]
            for weight, bias in layers:
                if weight.ndim != 2 or weight.shape[1] != widths[-1] or bias.shape != weight.shape[:1]:
                    raise ModelMismatch(f"a layer of shape {weight.shape} does not fit {widths[-1]} inputs")
                widths.append(len(bias))
            if widths[-1] != 1:
                raise ModelMismatch(f"the last layer has {widths[-1]} outputs instead of 1")
        self._transposed = [
            [(np.ascontiguousarray(weight.T), bias) for weight, bias in layers] for layers in self.members
        ]

    def scores(self, features: Matrix) -> Floats:
        """Return the scores of feature rows (rows, features), shape (rows,): the members' mean, in float32."""
        result = np.empty(len(features), dtype=np.float64)
        for start in range(0, len(features), _BLOCK):
            result[start : start + _BLOCK] = self._block(self.standardizer.apply(features[start : start + _BLOCK]))
        return result

    def _block(self, rows: Matrix) -> Floats:
        """Return the scores of a few standardised rows."""
        total = np.zeros(len(rows), dtype=np.float64)
        for layers in self._transposed:
            values = rows
            for weight, bias in layers[:-1]:
                values = values @ weight
                values += bias
                np.maximum(values, 0.0, out=values)
            weight, bias = layers[-1]
            total += (values @ weight[:, 0] + bias[0]).astype(np.float64)
        return total / len(self._transposed)

    def tensors(self) -> dict[str, NDArray[np.generic]]:
        """Return the arrays to save, by name."""
        named = self.standardizer.tensors()
        for i, layers in enumerate(self.members):
            for j, (weight, bias) in enumerate(layers):
                named[f"member{i}.layer{j}.weight"] = weight
                named[f"member{i}.layer{j}.bias"] = bias
        return named

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, NDArray[np.generic]]) -> Network:
        """Rebuild a network from :meth:`tensors`.

        Raises
        ------
        ModelMismatch
            If a tensor is missing or has the wrong shape.
        """
        members: list[list[Layer]] = []
        try:
            while f"member{len(members)}.layer0.weight" in tensors:
                prefix = f"member{len(members)}.layer"
                layers: list[Layer] = []
                while f"{prefix}{len(layers)}.weight" in tensors:
                    name = f"{prefix}{len(layers)}"
                    weight = np.asarray(tensors[f"{name}.weight"], dtype=np.float32)
                    layers.append((weight, np.asarray(tensors[f"{name}.bias"], dtype=np.float32)))
                members.append(layers)
            return cls(Standardizer.from_tensors(tensors), members)
        except KeyError as error:
            raise ModelMismatch(f"the saved network lacks the tensor {error}") from error
