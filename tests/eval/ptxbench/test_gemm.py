"""Reading definitions as dense GEMMs."""

import pytest

from cutlass_ranker import CutlassRankerError, UnsupportedProblem
from cutlass_ranker.eval.ptxbench import Definition, load_definition, read_gemm

AXES = {
    "tokens": {"type": "var"}, "hidden": {"type": "const", "value": 512}, "wide": {"type": "const", "value": 1024},
}  # fmt: skip


def definition(a: list[str], b: list[str], product: str, dtype: str = "float16", more: str = "") -> Definition:
    return Definition.from_dict(
        {
            "name": "product", "op_type": "gemm", "axes": AXES,
            "inputs": {"x": {"shape": a, "dtype": dtype}, "w": {"shape": b, "dtype": dtype}},
            "outputs": {"y": {"shape": ["tokens", "wide"], "dtype": dtype}},
            "reference": f"import torch\ndef run(x, w):\n    y = {product}\n    {more}\n    return y\n",
        }
    )  # fmt: skip


@pytest.mark.parametrize(
    ("a", "b", "product", "layout"),
    [
        (["tokens", "hidden"], ["wide", "hidden"], "torch.matmul(x, w.T)", "TNT"),
        (["tokens", "hidden"], ["hidden", "wide"], "x @ w", "TTT"),
        (["hidden", "tokens"], ["hidden", "wide"], "x.t() @ w", "NTT"),
        (["hidden", "tokens"], ["wide", "hidden"], "torch.mm(x.transpose(0, 1), w.T)", "NNT"),
    ],
)
def test_layouts(a: list[str], b: list[str], product: str, layout: str) -> None:
    gemm = read_gemm(definition(a, b, product))
    assert (gemm.layout, gemm.dtype, gemm.free_axes) == (layout, "f16", ("tokens",))
    problem = gemm.problem({"tokens": 48})
    assert (problem.m, problem.n, problem.k, problem.dtype.name) == (48, 1024, 512, "f16")


@pytest.mark.parametrize(
    ("product", "more"),
    [
        ("x @ w.T + 1", ""),
        ("torch.relu(x @ w.T)", ""),
        ("x @ w.T", "y *= 2"),
        ("x @ w.T @ w @ w.T", ""),
        ("x", ""),
    ],
)
def test_references_that_do_more_than_multiply(product: str, more: str) -> None:
    with pytest.raises(UnsupportedProblem):
        read_gemm(definition(["tokens", "hidden"], ["wide", "hidden"], product, more=more))


def test_types_and_shapes_that_are_not_checked() -> None:
    with pytest.raises(UnsupportedProblem, match="float8"):
        read_gemm(definition(["tokens", "hidden"], ["wide", "hidden"], "x @ w.T", "float8_e4m3fn"))
    with pytest.raises(UnsupportedProblem, match="inputs must be"):
        read_gemm(definition(["tokens", "hidden"], ["wide", "tokens"], "x @ w.T"))


def test_a_free_axis_needs_a_value() -> None:
    with pytest.raises(CutlassRankerError, match="axis M"):
        read_gemm(load_definition("gemm_n7168_k5120")).problem({})


def test_names_of_definitions_that_are_not_shipped() -> None:
    assert load_definition("gemm_n4096_k2048").axes == {"M": None, "N": 4096, "K": 2048}
    for name in ("gemm_k5120_n7168", "attention", "gemm_n7168"):
        with pytest.raises(CutlassRankerError, match="no definition"):
            load_definition(name)
