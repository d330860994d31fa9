"""Dense GEMMs among definitions: which axes are M, N and K, and how the matrices lie in memory."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Final
from uuid import NAMESPACE_URL, uuid5

from ...generator import DataError, Problem, UnsupportedProblem, parse_dtype
from .schema import Definition, Trace, Workload, read_json

ELEMENTS: Final = {"bfloat16": "bf16", "float16": "f16"}
"""Element types that the checker takes, with their names in this project."""

_CALLS: Final = {"matmul", "mm", "transpose", "swapaxes", "t", "permute", "contiguous", "linear", "to", "float"}
"""What a reference may call and still be a plain product."""


@dataclass(frozen=True)
class Gemm:
    """A definition read as C[M,N] = A[M,K] · B[K,N] with float32 accumulation."""

    definition: Definition
    axes: tuple[str, str, str]
    """Names of M, N and K."""
    layout: str
    """Letters of A, B and C: ``T`` row-major, ``N`` column-major."""
    dtype: str
    """``bf16`` or ``f16``."""

    @property
    def free_axes(self) -> tuple[str, ...]:
        """Axes that the definition leaves to the workload."""
        return tuple(name for name in self.axes if self.definition.axes[name] is None)

    def problem(self, values: dict[str, int]) -> Problem:
        """Return the problem for values of the free axes, by name.

        Raises
        ------
        DataError
            If a free axis has no value.
        """
        sizes: list[int] = []
        for name in self.axes:
            value = self.definition.axes[name]
            if value is None and name not in values:
                raise DataError(f"{self.definition.name} needs a value of its axis {name}")
            sizes.append(values[name] if value is None else value)
        m, n, k = sizes
        return Problem(m, n, k, self.layout, parse_dtype(self.dtype))

    def workload(self, values: dict[str, int]) -> Workload:
        """Return a workload with random inputs, whose uuid depends on definition and values only."""
        self.problem(values)
        free = {name: values[name] for name in self.free_axes}
        name = "/".join([self.definition.name, *(f"{axis}={value}" for axis, value in free.items())])
        inputs = {tensor: {"type": "random"} for tensor in self.definition.inputs}
        return Workload(free, inputs, str(uuid5(NAMESPACE_URL, name)))

    def workload_trace(self, values: dict[str, int]) -> Trace:
        """Return the workload as a trace without an evaluation."""
        return Trace(self.definition.name, self.workload(values))


def read_gemm(definition: Definition) -> Gemm:
    """Read a definition as a dense GEMM.

    The output's first axis is M, its second N; the axis that the inputs share is K. A stored [N, K] input is a
    column-major B.

    Raises
    ------
    UnsupportedProblem
        If it is no dense product of two matrices of BF16 or FP16, or its reference does more than multiply.
    """
    name = definition.name
    inputs, outputs = list(definition.inputs.values()), list(definition.outputs.values())
    shapes = [tensor.shape or () for tensor in (*inputs, *outputs)]
    if len(inputs) != 2 or len(outputs) != 1 or any(len(shape) != 2 for shape in shapes):
        raise UnsupportedProblem(f"{name} is no dense GEMM: it needs two matrices in and one out")
    types = {tensor.dtype for tensor in (*inputs, *outputs)}
    if len(types) != 1 or not types <= set(ELEMENTS):
        raise UnsupportedProblem(f"{name} has the types {', '.join(sorted(types))}; bfloat16 or float16 is checked")
    (first, second, out), (m, n) = shapes, shapes[2]
    shared = set(first) & set(second)
    if m == n or len(shared) != 1:
        raise UnsupportedProblem(f"{name}: its axes do not tell M, N and K apart; name them differently")
    (k,) = shared
    if set(first) != {m, k} or set(second) != {n, k}:
        raise UnsupportedProblem(f"{name}: inputs must be M×K and N×K (or transposed) for an output {out}")
    _require_plain_product(definition)
    layout = ("T" if first == (m, k) else "N") + ("T" if second == (k, n) else "N") + "T"
    return Gemm(definition, (m, n, k), layout, ELEMENTS[types.pop()])


def _require_plain_product(definition: Definition) -> None:
    """Refuse references that add a bias, an activation, a scale ...: only products and transpositions may occur."""
    body = next(
        node
        for node in ast.parse(definition.reference).body
        if isinstance(node, ast.FunctionDef) and node.name == "run"
    )
    products = 0
    for node in ast.walk(body):
        name = ""
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
            products += name in ("matmul", "mm", "linear")
        wrong_call = isinstance(node, ast.Call) and name not in _CALLS
        wrong_operator = isinstance(node, ast.BinOp | ast.AugAssign) and not isinstance(node.op, ast.MatMult)
        products += isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult)
        if wrong_call or wrong_operator:
            raise UnsupportedProblem(
                f"{definition.name}: the reference does more than multiply ({ast.unparse(node)[:60]}); "
                "plain dense GEMMs are checked"
            )
    if products != 1:
        raise UnsupportedProblem(f"{definition.name}: the reference has {products} products; one is checked")


def load_definition(which: str | Path) -> Definition:
    """Return a definition by its file, or a shipped one by its name (``gemm_n7168_k5120``).

    A name of the form ``gemm_n<N>_k<K>`` that is not shipped means C[M,N] = A[M,K] · B[N,K]ᵀ in BF16.

    Raises
    ------
    DataError
        If there is no such definition.
    """
    path = Path(which)
    if path.suffix == ".json" or path.is_file():
        return Definition.from_dict(read_json(path))
    with as_file(files(__package__) / "data") as folder:
        shipped = folder / f"{which}.json"
        if shipped.is_file():
            return Definition.from_dict(read_json(shipped))
        template = Definition.from_dict(read_json(folder / "gemm_n7168_k5120.json"))
    parts = str(which).split("_")
    sizes = [part[1:] for part in parts[1:] if part[:1] in ("n", "k") and part[1:].isdecimal()]
    if len(parts) != 3 or parts[0] != "gemm" or len(sizes) != 2 or (parts[1][0], parts[2][0]) != ("n", "k"):
        raise DataError(f"there is no definition {which!r}; give a JSON file, or a name such as gemm_n7168_k5120")
    return Definition(
        name=str(which),
        op_type=template.op_type,
        axes={"M": None, "N": int(sizes[0]), "K": int(sizes[1])},
        inputs=template.inputs,
        outputs=template.outputs,
        reference=template.reference,
        description="C = A @ B.T",
    )
