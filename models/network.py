"""NumPy inference of the multilayer perceptrons (and of linear models, which are networks without hidden layers)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..generator.errors import ModelMismatch
from .base import Floats, Matrix, Rows, Standardizer

_BLOCK: Final = 512
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
        self._compile()

    def scores(self, features: Matrix) -> Floats:
        """Return the scores of feature rows (rows, features), shape (rows,): the members' mean, in float32."""
        return np.asarray(self.member_scores(features).mean(axis=0))

    def member_scores(self, features: Matrix) -> Floats:
        """Return the scores that each member gives feature rows (rows, features), shape (members, rows)."""
        result = np.empty((len(self.members), len(features)), dtype=np.float64)
        for start in range(0, len(features), _BLOCK):
            self._block(self.standardizer.cut(features[start : start + _BLOCK]), result[:, start : start + _BLOCK])
        result += self._offset
        return result

    def detailed(self, features: Matrix) -> tuple[Floats, Rows, Floats]:
        """Return the scores (rows,), the rows whose members' scores are known, all, and those (members, rows)."""
        members = self.member_scores(features)
        return members.mean(axis=0), np.arange(len(features)), members

    def _compile(self) -> None:
        """Put the members' first layers side by side, and move scale, mean and biases to where they cost nothing.

        The standardizer's scale becomes part of the first layers' weights, its mean of their biases. And
        max(x + b, 0) = max(x, −b) + b, so a bias becomes the floor of its layer and moves on into the bias of the next
        one; what arrives at the end is an offset of the scores.
        """
        first = [layers[0][0] * self.standardizer.scale for layers in self.members]
        mean = self.standardizer.mean.astype(np.float64)
        self._first = np.ascontiguousarray(np.concatenate(first).T)
        stops = np.cumsum([len(weight) for weight in first])
        self._spans = [slice(stop - len(weight), stop) for stop, weight in zip(stops.tolist(), first, strict=True)]
        # A member without hidden layers has its output here, which has no floor.
        self._floor = np.full(len(self._first.T), -np.inf, dtype=np.float32)
        self._rest: list[list[tuple[Matrix, Matrix | None]]] = []
        offsets: list[float] = []
        for span, weights, layers in zip(self._spans, first, self.members, strict=True):
            bias = layers[0][1] - weights.astype(np.float64) @ mean
            rest: list[tuple[Matrix, Matrix | None]] = []
            for place, (weight, own) in enumerate(layers[1:], start=1):
                if place == 1:
                    self._floor[span] = -bias
                else:
                    rest[-1] = (rest[-1][0], (-bias).astype(np.float32))
                rest.append((np.ascontiguousarray(weight.T), None))
                bias = weight.astype(np.float64) @ bias + own
            self._rest.append(rest)
            offsets.append(float(bias[0]))
        self._offset = np.array(offsets)[:, None]

    def _block(self, rows: Matrix, out: Floats) -> None:
        """Write the scores of a few rows that were cut, without their offsets, to ``out`` (members, rows)."""
        hidden = rows @ self._first
        np.maximum(hidden, self._floor, out=hidden)
        for span, rest, scores in zip(self._spans, self._rest, out, strict=True):
            values = hidden[:, span]
            for weight, floor in rest:
                values = values @ weight
                if floor is not None:
                    np.maximum(values, floor, out=values)
            scores[:] = values[:, 0]

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
