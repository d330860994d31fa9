"""Problems, kernel configurations, launches and candidates: the words of the project as types."""

from __future__ import annotations

import operator
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Final, SupportsIndex

from .errors import InvalidConfig, InvalidProblem
from .naming import format_name


class Schedule(IntEnum):
    """Mainloop schedule of an SM90 kernel (``KernelTmaWarpSpecialized*``)."""

    WARPSPECIALIZED = 0
    PINGPONG = 1
    COOPERATIVE = 2


class Epilogue(IntEnum):
    """Epilogue schedule: straight from registers, or through shared memory and TMA."""

    NOSMEM = 0
    TMA = 1
    TMA_64 = 2
    """The same with an epilogue tile of 64 columns, where ``EpilogueTileAuto`` has 32: rows of a row-major D leave in
    whole lines of 128 bytes."""


class Scheduler(IntEnum):
    """Tile scheduler compiled into the kernel."""

    PERSISTENT = 0
    STREAM_K = 1
    SPLIT_K = 2
    """The persistent one over slices of K, which the kernel takes for the matrices of a batch. It stores their float32
    results apart and a second kernel adds them (``templates/split_k_slices.h``): split-K without Stream-K's cooperative
    schedule, for tiles of 64 rows too. Its launches are those with ``Decomposition.SPLIT_K_SEPARATE``."""


class Raster(IntEnum):
    """``RasterOrderOptions`` of the persistent schedulers, chosen per launch."""

    HEURISTIC = 0
    ALONG_M = 1
    ALONG_N = 2


class Decomposition(IntEnum):
    """``DecompositionMode`` and ``ReductionMode`` of the Stream-K scheduler, chosen per launch."""

    HEURISTIC = 0
    DATA_PARALLEL = 1
    SPLIT_K = 2
    """Split-K: each slice waits for the one before it to add its partial sums, so results are reproducible."""
    STREAM_K = 3
    SPLIT_K_ATOMIC = 4
    """Split-K whose partial sums are added in any order (``ReductionMode::Nondeterministic``): slices do not queue up,
    but with more than three of them the last bits of a result differ from run to run."""
    SPLIT_K_PARALLEL = 5
    """Split-K whose slices store their partial sums apart, without waiting; the last slice adds them in a fixed order
    (``templates/split_k_parallel.h``): results are reproducible and slices do not queue up."""
    SPLIT_K_SEPARATE = 6
    """The same, but a second kernel adds the partial sums on all SMs (``templates/split_k_reduction.h``)."""


SPLIT_K_DECOMPOSITIONS: Final = (
    Decomposition.SPLIT_K,
    Decomposition.SPLIT_K_ATOMIC,
    Decomposition.SPLIT_K_PARALLEL,
    Decomposition.SPLIT_K_SEPARATE,
)
"""Decompositions that cut K into ``splits`` slices."""


SWIZZLES: Final = (1, 2, 4, 8)
"""Legal values of ``max_swizzle_size``."""

FAMILIES: Final = ("TNT", "TNN", "TTT", "TTN", "NNT", "NNN", "NTT", "NTN")
"""The eight kernel families: layouts of A, B and D; the position is the code used in columns."""

MAX_DIMENSION: Final = 2**31 - 1
"""Largest M, N or K: CUTLASS's problem shape is made of 32-bit integers."""


@dataclass(frozen=True, slots=True)
class DType:
    """An element type of A, B and D; accumulation is always float32."""

    name: str
    """Name in ``cutlass_library`` procedural names, e.g. ``bf16``."""
    bytes: int
    """Bytes per element."""
    cpp: str
    """C++ type."""
    aliases: tuple[str, ...]
    """Other spellings, as torch and CUTLASS write them (lower case)."""


DTYPES: Final[dict[str, DType]] = {
    "bf16": DType("bf16", 2, "cutlass::bfloat16_t", ("bfloat16", "torch.bfloat16", "cutlass::bfloat16_t")),
    "f16": DType(
        "f16", 2, "cutlass::half_t", ("fp16", "float16", "half", "torch.float16", "torch.half", "cutlass::half_t")
    ),
}
"""Element types that the configuration rules cover. Both are 2 bytes wide."""


def parse_dtype(dtype: object) -> DType:
    """Return the :class:`DType` for a spelling such as ``"bf16"``, ``torch.bfloat16`` or ``"cutlass::bfloat16_t"``.

    Raises
    ------
    InvalidProblem
        If the spelling names no supported type.
    """
    if isinstance(dtype, DType):
        return dtype
    text = str(dtype).strip().lower()
    for known in DTYPES.values():
        if text == known.name or text in known.aliases:
            return known
    names = ", ".join(f"{known.name} ({known.aliases[0]})" for known in DTYPES.values())
    raise InvalidProblem(f"dtype {dtype!r} is not supported; use one of {names}")


def parse_layout(layout: object) -> str:
    """Return the three-letter family (``"TNT"``) for ``"TN"``, ``"tn"`` or ``"tnt"``; D is row-major unless said.

    Raises
    ------
    InvalidProblem
        If the text is not two or three letters out of T and N.
    """
    text = layout.strip().upper() if isinstance(layout, str) else ""
    if len(text) == 2:
        text += "T"
    if text not in FAMILIES:
        raise InvalidProblem(
            f"layout {layout!r} is unknown; use TN, TT, NN or NT (T = row-major, N = column-major, in the order A, B), "
            "optionally followed by the letter of D, e.g. TNT"
        )
    return text


def swap_family(family: str) -> str:
    """Return the family whose kernels compute the transposed problem (D^T = B^T A^T): TNT <-> TNN, TTT <-> NNN, ..."""
    flip = {"T": "N", "N": "T"}
    return flip[family[1]] + flip[family[0]] + flip[family[2]]


def _dimension(name: str, value: object) -> int:
    """Check one problem dimension and return it as a plain int."""
    if isinstance(value, bool) or type(value).__name__ == "bool":
        raise InvalidProblem(f"{name} is {value!r}; it must be a whole number, not a truth value")
    if isinstance(value, str) or not isinstance(value, SupportsIndex):
        raise InvalidProblem(f"{name} is {value!r}; it must be a whole number of elements (an int)")
    try:
        number = operator.index(value)
    except TypeError as error:
        raise InvalidProblem(f"{name} is {value!r}; it must be a whole number of elements (an int)") from error
    if not 1 <= number <= MAX_DIMENSION:
        raise InvalidProblem(f"{name} is {number}; it must lie between 1 and {MAX_DIMENSION} (32-bit problem shapes)")
    return number


@dataclass(frozen=True, slots=True)
class Problem:
    """One GEMM: D[M,N] = A[M,K] . B[K,N].

    Raises
    ------
    InvalidProblem
        If a size is not a whole number from 1 to 2**31 - 1, or the layout or type is unknown.
    """

    m: int
    """Rows of A and D (elements)."""
    n: int
    """Columns of B and D (elements)."""
    k: int
    """Columns of A, rows of B (elements)."""
    layout: str = "TNT"
    """Family: letters of A, B, D; ``T`` row-major, ``N`` column-major. Two letters mean a row-major D."""
    dtype: DType = field(default_factory=lambda: DTYPES["bf16"])
    """Element type of A, B and D; any spelling :func:`parse_dtype` takes is accepted."""

    def __post_init__(self) -> None:
        for name in ("m", "n", "k"):
            object.__setattr__(self, name, _dimension(name.upper(), getattr(self, name)))
        object.__setattr__(self, "layout", parse_layout(self.layout))
        object.__setattr__(self, "dtype", parse_dtype(self.dtype))

    @property
    def flops(self) -> int:
        """Floating-point operations, 2MNK."""
        return 2 * self.m * self.n * self.k

    @property
    def min_bytes(self) -> int:
        """Fewest bytes that DRAM must move: A and B read once, D written once."""
        return self.dtype.bytes * (self.m * self.k + self.k * self.n + self.m * self.n)

    def transposed(self) -> Problem:
        """Return the problem (N, M, K) of the swapped family, which computes D^T into the same memory."""
        return replace(self, m=self.n, n=self.m, layout=swap_family(self.layout))

    def __str__(self) -> str:
        return f"{self.m}x{self.n}x{self.k} {self.layout} {self.dtype.name}"


@dataclass(frozen=True, slots=True)
class KernelConfig:
    """What is fixed when a kernel is compiled; it is identified by its procedural name, :attr:`name`."""

    tile_m: int
    tile_n: int
    tile_k: int
    cluster_m: int
    cluster_n: int
    stages: int
    """Mainloop pipeline stages."""
    schedule: Schedule
    epilogue: Epilogue
    scheduler: Scheduler = Scheduler.PERSISTENT
    family: str = "TNT"
    """Layouts of A, B and D as the kernel sees them."""
    void_c: bool = False
    """True if the kernel is compiled without a source matrix C (``void`` as ElementC)."""
    dtype: DType = field(default_factory=lambda: DTYPES["bf16"])

    def __post_init__(self) -> None:
        for name in ("tile_m", "tile_n", "tile_k", "cluster_m", "cluster_n", "stages"):
            value = getattr(self, name)
            if type(value) is int and value >= 1:  # the usual case; the checks below are slow
                continue
            if isinstance(value, bool) or not isinstance(value, SupportsIndex) or operator.index(value) < 1:
                raise InvalidConfig(f"{name} is {value!r}; it must be a positive whole number")
            object.__setattr__(self, name, operator.index(value))
        for name, kind in (("schedule", Schedule), ("epilogue", Epilogue), ("scheduler", Scheduler)):
            object.__setattr__(self, name, kind(getattr(self, name)))
        object.__setattr__(self, "family", parse_layout(self.family))
        object.__setattr__(self, "dtype", parse_dtype(self.dtype))
        object.__setattr__(self, "void_c", bool(self.void_c))

    @property
    def name(self) -> str:
        """The ``cutlass_library`` procedural name; ``_n64`` at its end, for ``Epilogue.TMA_64``, is this project's."""
        return format_name(
            self.dtype.name, self.dtype.bytes, self.void_c, (self.tile_m, self.tile_n, self.tile_k),
            (self.cluster_m, self.cluster_n), self.stages, self.family, self.scheduler, self.schedule, self.epilogue,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Launch:
    """What is chosen when a kernel is launched, at no cost.

    ``splits`` above 1 needs one of ``SPLIT_K_DECOMPOSITIONS``; decomposition and splits concern the kernels of
    ``Scheduler.STREAM_K`` and ``SPLIT_K`` only.
    """

    raster: Raster = Raster.HEURISTIC
    swizzle: int = 1
    """``max_swizzle_size``: 1, 2, 4 or 8."""
    decomposition: Decomposition = Decomposition.HEURISTIC
    splits: int = 1
    """Slices of K with ``SPLIT_K_DECOMPOSITIONS``."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "raster", Raster(self.raster))
        object.__setattr__(self, "decomposition", Decomposition(self.decomposition))
        if self.swizzle not in SWIZZLES:
            raise InvalidConfig(f"swizzle is {self.swizzle!r}; it must be one of {SWIZZLES}")
        if self.splits < 1 or (self.splits > 1) != (self.decomposition in SPLIT_K_DECOMPOSITIONS):
            raise InvalidConfig(
                f"splits is {self.splits} with decomposition {self.decomposition.name}; "
                f"{', '.join(kind.name for kind in SPLIT_K_DECOMPOSITIONS)} need at least 2 splits, "
                "every other decomposition exactly 1"
            )

    @property
    def deterministic(self) -> bool:
        """True if the same operands always give the same bits: partial sums are not added in any order."""
        return self.decomposition is not Decomposition.SPLIT_K_ATOMIC


@dataclass(frozen=True, slots=True)
class Candidate:
    """What is ranked, measured and returned: a kernel, its launch, and whether the operands are swapped."""

    config: KernelConfig
    launch: Launch = field(default_factory=Launch)
    swapped: bool = False
    """True if the kernel runs the transposed problem (N, M, K) of the swapped family."""
