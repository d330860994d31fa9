"""FlashInfer-Trace: definitions, workloads, solutions and traces as JSON files in its folder layout.

The layout of a folder (a *trace set*) is::

    definitions/<op_type>/<name>.json
    workloads/<op_type>/<definition>.jsonl     one workload trace a line
    solutions/<op_type>/<definition>/<name>.json
    traces/<op_type>/<definition>.jsonl        one trace a line

The schema is that of flashinfer-bench 0.1. What it does not name (evidence of a gate) goes where it allows free fields:
``correctness.extra`` of a trace and, as JSON, its ``log``.
"""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Any, Final

from ...generator import DataError

DTYPES: Final = (
    "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float4_e2m1",
    "int64", "int32", "int16", "int8", "bool",
)  # fmt: skip
LANGUAGES: Final = ("python", "triton", "cpp", "cuda", "tilelang")
BINDINGS: Final = ("tvm-ffi", "torch")


def _text(where: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise DataError(f"{where} is {value!r}; it must be a text that is not empty")
    return value


def _count(where: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise DataError(f"{where} is {value!r}; it must be a whole number from 0")
    return value


def _mapping(where: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise DataError(f"{where} is {value!r}; it must be a JSON object")
    return value


def _list(where: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise DataError(f"{where} is {value!r}; it must be a JSON list")
    return value


def _choice(where: str, value: Any, known: Iterable[str]) -> str:
    if value not in known:
        raise DataError(f"{where} is {value!r}; it must be one of {', '.join(known)}")
    return str(value)


def _optional(values: dict[str, Any]) -> dict[str, Any]:
    """Drop members that are not given."""
    return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True)
class Tensor:
    """Shape and element type of an input or output."""

    shape: tuple[str, ...] | None
    """Names of axes; None for a scalar."""
    dtype: str
    description: str | None = None

    @classmethod
    def from_dict(cls, where: str, values: Any) -> Tensor:
        """Read a tensor; ``where`` is named in errors."""
        given = _mapping(where, values)
        shape = given.get("shape")
        names = None if shape is None else tuple(_text(f"{where}.shape", axis) for axis in _list(where, shape))
        return cls(names, _choice(f"{where}.dtype", given.get("dtype"), DTYPES), given.get("description"))

    def to_dict(self) -> dict[str, Any]:
        """Return JSON members."""
        shape = None if self.shape is None else list(self.shape)
        return {"shape": shape, "dtype": self.dtype, **_optional({"description": self.description})}


@dataclass(frozen=True)
class Definition:
    """What is to be computed."""

    name: str
    op_type: str
    axes: Mapping[str, int | None]
    """Value of a constant axis, None for one that the workload sets."""
    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]
    reference: str
    """Python source with a function ``run``."""
    tags: tuple[str, ...] = ()
    description: str | None = None
    constraints: tuple[str, ...] = ()
    axis_descriptions: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        tensors = {**self.inputs, **self.outputs}
        if len(tensors) != len(self.inputs) + len(self.outputs):
            raise DataError(f"definition {self.name}: inputs and outputs share names")
        for name, tensor in tensors.items():
            for axis in tensor.shape or ():
                if axis not in self.axes:
                    raise DataError(f"definition {self.name}: {name} has the axis {axis!r}, which axes does not list")
        try:
            functions = [node.name for node in ast.parse(self.reference).body if isinstance(node, ast.FunctionDef)]
        except SyntaxError as error:
            raise DataError(f"definition {self.name}: the reference is no Python: {error}") from error
        if "run" not in functions:
            raise DataError(f"definition {self.name}: the reference has no function named run")

    @classmethod
    def from_dict(cls, values: Any) -> Definition:
        """Read a definition.

        Raises
        ------
        DataError
            If it is no definition.
        """
        given = _mapping("a definition", values)
        name = _text("definition.name", given.get("name"))
        where = f"definition {name}"
        axes: dict[str, int | None] = {}
        descriptions: dict[str, str] = {}
        for axis, spec in _mapping(f"{where}: axes", given.get("axes")).items():
            kind = _choice(
                f"{where}: type of axis {axis}", _mapping(f"{where}: {axis}", spec).get("type"), ("const", "var")
            )
            axes[axis] = _count(f"{where}: axis {axis}", spec.get("value")) if kind == "const" else None
            if spec.get("description") is not None:
                descriptions[axis] = _text(f"{where}: description of {axis}", spec["description"])
        inputs, outputs = (
            {
                tensor: Tensor.from_dict(f"{where}: {side}.{tensor}", spec)
                for tensor, spec in _mapping(f"{where}: {side}", given.get(side)).items()
            }
            for side in ("inputs", "outputs")
        )
        return cls(
            name=name,
            op_type=_text(f"{where}: op_type", given.get("op_type")),
            axes=axes,
            inputs=inputs,
            outputs=outputs,
            reference=_text(f"{where}: reference", given.get("reference")),
            tags=tuple(_list(f"{where}: tags", given.get("tags", []))),
            description=given.get("description"),
            constraints=tuple(_list(f"{where}: constraints", given.get("constraints", []))),
            axis_descriptions=descriptions,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return JSON members."""
        axes = {
            name: {"type": "var"} if value is None else {"type": "const", "value": value}
            for name, value in self.axes.items()
        }
        for name, text in self.axis_descriptions.items():
            axes[name]["description"] = text
        result: dict[str, Any] = {"name": self.name, "op_type": self.op_type}
        result |= _optional({"description": self.description})
        result |= {"tags": list(self.tags)} if self.tags else {}
        result["axes"] = axes
        result |= {"constraints": list(self.constraints)} if self.constraints else {}
        result["inputs"] = {name: tensor.to_dict() for name, tensor in self.inputs.items()}
        result["outputs"] = {name: tensor.to_dict() for name, tensor in self.outputs.items()}
        return {**result, "reference": self.reference}


@dataclass(frozen=True)
class Workload:
    """Values of the variable axes and where inputs come from."""

    axes: Mapping[str, int]
    inputs: Mapping[str, Mapping[str, Any]]
    """Per input: ``{"type": "random"}``, ``{"type": "scalar", "value": ...}`` or ``{"type": "safetensors", ...}``."""
    uuid: str

    @classmethod
    def from_dict(cls, values: Any) -> Workload:
        """Read a workload; raises :class:`DataError`."""
        given = _mapping("a workload", values)
        uuid = _text("workload.uuid", given.get("uuid"))
        axes = _mapping(f"workload {uuid}: axes", given.get("axes"))
        inputs = _mapping(f"workload {uuid}: inputs", given.get("inputs"))
        for name, spec in inputs.items():
            kind = _mapping(f"workload {uuid}: input {name}", spec).get("type")
            _choice(f"workload {uuid}: type of input {name}", kind, ("random", "scalar", "safetensors"))
        return cls({name: _count(f"workload {uuid}: axis {name}", value) for name, value in axes.items()}, inputs, uuid)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON members."""
        inputs = {name: dict(spec) for name, spec in self.inputs.items()}
        return {"axes": dict(self.axes), "inputs": inputs, "uuid": self.uuid}


@dataclass(frozen=True)
class Source:
    """One source file of a solution."""

    path: str
    content: str

    def __post_init__(self) -> None:
        path = PurePosixPath(_text("source.path", self.path))
        if path.is_absolute() or ".." in path.parts:
            raise DataError(f"source path {self.path!r} must be relative and stay inside the solution")
        _text(f"content of {self.path}", self.content)


@dataclass(frozen=True)
class Solution:
    """A program that claims to compute a definition."""

    name: str
    definition: str
    author: str
    language: str
    target_hardware: tuple[str, ...]
    entry_point: str
    """``file::function``."""
    sources: tuple[Source, ...]
    dependencies: tuple[str, ...] = ()
    destination_passing_style: bool = True
    binding: str | None = None
    description: str | None = None

    def __post_init__(self) -> None:
        for name in ("name", "definition", "author"):
            _text(f"solution.{name}", getattr(self, name))
        where = f"solution {self.name}"
        _choice(f"{where}: language", self.language, LANGUAGES)
        if self.binding is not None:
            _choice(f"{where}: binding", self.binding, BINDINGS)
        if not self.target_hardware:
            raise DataError(f"{where}: target_hardware is empty")
        paths = [source.path for source in self.sources]
        if len(set(paths)) != len(paths):
            raise DataError(f"{where}: two sources have the same path")
        if self.entry_point.count("::") != 1 or self.entry_file not in paths:
            raise DataError(f"{where}: entry_point is {self.entry_point!r}; it must be a source's path::function")

    @property
    def entry_file(self) -> str:
        """Path of the source that holds the entry function."""
        return self.entry_point.split("::")[0]

    @property
    def entry_symbol(self) -> str:
        """Name of the entry function."""
        return self.entry_point.split("::")[-1]

    @classmethod
    def from_dict(cls, values: Any) -> Solution:
        """Read a solution; raises :class:`DataError`."""
        given = _mapping("a solution", values)
        name = _text("solution.name", given.get("name"))
        where = f"solution {name}"
        spec = _mapping(f"{where}: spec", given.get("spec"))
        sources = [_mapping(f"{where}: source", source) for source in _list(f"{where}: sources", given.get("sources"))]
        return cls(
            name=name,
            definition=_text(f"{where}: definition", given.get("definition")),
            author=_text(f"{where}: author", given.get("author")),
            language=_text(f"{where}: language", spec.get("language")),
            target_hardware=tuple(_list(f"{where}: target_hardware", spec.get("target_hardware"))),
            entry_point=_text(f"{where}: entry_point", spec.get("entry_point")),
            sources=tuple(Source(source.get("path", ""), source.get("content", "")) for source in sources),
            dependencies=tuple(_list(f"{where}: dependencies", spec.get("dependencies") or [])),
            destination_passing_style=bool(spec.get("destination_passing_style", True)),
            binding=spec.get("binding"),
            description=given.get("description"),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return JSON members."""
        spec: dict[str, Any] = {
            "language": self.language,
            "target_hardware": list(self.target_hardware),
            "entry_point": self.entry_point,
            "dependencies": list(self.dependencies),
            "destination_passing_style": self.destination_passing_style,
            **_optional({"binding": self.binding}),
        }
        sources = [{"path": source.path, "content": source.content} for source in self.sources]
        about = _optional({"description": self.description})
        return {
            "name": self.name, "definition": self.definition, "author": self.author, **about, "spec": spec,
            "sources": sources,
        }  # fmt: skip


class Status(StrEnum):
    """Outcome of an evaluation."""

    PASSED = "PASSED"
    INCORRECT_SHAPE = "INCORRECT_SHAPE"
    INCORRECT_NUMERICAL = "INCORRECT_NUMERICAL"
    INCORRECT_DTYPE = "INCORRECT_DTYPE"
    RUNTIME_ERROR = "RUNTIME_ERROR"
    COMPILE_ERROR = "COMPILE_ERROR"
    TIMEOUT = "TIMEOUT"


def _number(where: str, value: Any) -> float:
    """Read a number, or NaN and infinities as the texts that JSON lacks numbers for."""
    if isinstance(value, str) and value.lower().lstrip("+-") in ("nan", "inf", "infinity"):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise DataError(f"{where} is {value!r}; it must be a number")
    return float(value)


def _json_number(value: float) -> float | str:
    if math.isnan(value):
        return "NaN"
    return value if math.isfinite(value) else ("Infinity" if value > 0 else "-Infinity")


@dataclass(frozen=True)
class Correctness:
    """Largest errors against the reference."""

    max_relative_error: float = 0.0
    max_absolute_error: float = 0.0
    extra: Mapping[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return JSON members."""
        return {
            "max_relative_error": _json_number(self.max_relative_error),
            "max_absolute_error": _json_number(self.max_absolute_error),
            "extra": None if self.extra is None else dict(self.extra),
        }


@dataclass(frozen=True)
class Performance:
    """Times against the baseline's."""

    latency_ms: float
    reference_latency_ms: float
    speedup_factor: float
    """``reference_latency_ms / latency_ms``."""

    def to_dict(self) -> dict[str, Any]:
        """Return JSON members."""
        return {
            "latency_ms": self.latency_ms,
            "reference_latency_ms": self.reference_latency_ms,
            "speedup_factor": self.speedup_factor,
        }


@dataclass(frozen=True)
class Evaluation:
    """Result of one solution on one workload."""

    status: Status
    hardware: str
    libs: Mapping[str, str]
    timestamp: str
    """ISO 8601."""
    log: str = ""
    correctness: Correctness | None = None
    performance: Performance | None = None

    def __post_init__(self) -> None:
        wants_correctness = self.status in (Status.PASSED, Status.INCORRECT_NUMERICAL)
        if (self.correctness is not None) != wants_correctness:
            raise DataError(
                f"an evaluation with status {self.status} and correctness {self.correctness} is not allowed"
            )
        if (self.performance is not None) != (self.status is Status.PASSED):
            raise DataError(
                f"an evaluation with status {self.status} and performance {self.performance} is not allowed"
            )

    @classmethod
    def from_dict(cls, values: Any) -> Evaluation:
        """Read an evaluation; raises :class:`DataError`."""
        given = _mapping("an evaluation", values)
        status = Status(_choice("evaluation.status", given.get("status"), [status.value for status in Status]))
        environment = _mapping("evaluation.environment", given.get("environment"))
        correctness, performance = given.get("correctness"), given.get("performance")
        return cls(
            status=status,
            hardware=_text("environment.hardware", environment.get("hardware")),
            libs=_mapping("environment.libs", environment.get("libs", {})),
            timestamp=_text("evaluation.timestamp", given.get("timestamp")),
            log=str(given.get("log") or ""),
            correctness=None
            if correctness is None
            else Correctness(
                _number("max_relative_error", correctness.get("max_relative_error", 0.0)),
                _number("max_absolute_error", correctness.get("max_absolute_error", 0.0)),
                correctness.get("extra"),
            ),
            performance=None
            if performance is None
            else Performance(
                *(
                    _number(name, performance.get(name, 0.0))
                    for name in ("latency_ms", "reference_latency_ms", "speedup_factor")
                )
            ),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return JSON members."""
        return {
            "status": self.status.value,
            "environment": {"hardware": self.hardware, "libs": dict(self.libs)},
            "timestamp": self.timestamp,
            "log": self.log,
            "correctness": None if self.correctness is None else self.correctness.to_dict(),
            "performance": None if self.performance is None else self.performance.to_dict(),
        }


@dataclass(frozen=True)
class Trace:
    """A solution's evaluation on a workload, or a workload alone."""

    definition: str
    workload: Workload
    solution: str | None = None
    evaluation: Evaluation | None = None

    @classmethod
    def from_dict(cls, values: Any) -> Trace:
        """Read a trace; raises :class:`DataError`."""
        given = _mapping("a trace", values)
        evaluation = given.get("evaluation")
        return cls(
            definition=_text("trace.definition", given.get("definition")),
            workload=Workload.from_dict(given.get("workload")),
            solution=given.get("solution"),
            evaluation=None if evaluation is None else Evaluation.from_dict(evaluation),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return JSON members."""
        return {
            "definition": self.definition,
            "workload": self.workload.to_dict(),
            "solution": self.solution,
            "evaluation": None if self.evaluation is None else self.evaluation.to_dict(),
        }


def read_json(path: Path) -> Any:
    """Read one JSON file.

    Raises
    ------
    DataError
        If it is missing or no JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read {path}: {error}") from error


def write_json(path: Path, values: Any) -> None:
    """Write one JSON file in one step, and its folder if that is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    part.write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    part.replace(path)


def read_traces(path: Path) -> list[Trace]:
    """Read a JSONL file of traces; raises :class:`DataError`."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        return [Trace.from_dict(json.loads(line)) for line in lines if line.strip()]
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read {path}: {error}") from error


@dataclass
class TraceSet:
    """A FlashInfer-Trace folder."""

    root: Path

    def definitions(self) -> dict[str, Definition]:
        """Read all definitions, by name."""
        found = [Definition.from_dict(read_json(path)) for path in sorted((self.root / "definitions").rglob("*.json"))]
        return {definition.name: definition for definition in found}

    def solutions(self) -> list[Solution]:
        """Read all solutions."""
        return [Solution.from_dict(read_json(path)) for path in sorted((self.root / "solutions").rglob("*.json"))]

    def workloads(self) -> list[Trace]:
        """Read all workload traces."""
        paths = sorted((self.root / "workloads").rglob("*.jsonl"))
        return [trace for path in paths for trace in read_traces(path)]

    def traces(self) -> list[Trace]:
        """Read all traces of evaluations."""
        paths = sorted((self.root / "traces").rglob("*.jsonl"))
        return [trace for path in paths for trace in read_traces(path)]

    def add_definition(self, definition: Definition) -> Path:
        """Write a definition; return its file."""
        path = self.root / "definitions" / definition.op_type / f"{definition.name}.json"
        write_json(path, definition.to_dict())
        return path

    def add_solution(self, definition: Definition, solution: Solution) -> Path:
        """Write a solution; return its file."""
        path = self.root / "solutions" / definition.op_type / definition.name / f"{solution.name}.json"
        write_json(path, solution.to_dict())
        return path

    def add_traces(self, definition: Definition, traces: Iterable[Trace]) -> None:
        """Append traces: workloads alone to ``workloads/``, evaluations to ``traces/``."""
        for trace in traces:
            kind = "workloads" if trace.evaluation is None else "traces"
            path = self.root / kind / definition.op_type / f"{definition.name}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(trace.to_dict(), ensure_ascii=False) + "\n")
