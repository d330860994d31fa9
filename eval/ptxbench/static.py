"""Gate 1: the sources use no library and nothing that could hide work from the checker, and they build.

Vendor libraries are looked for in the sources (without comments), in what the preprocessor makes of them, in the
headers that it opened, and in the compiled object: its symbols, its texts and its host instructions. CUTLASS is
allowed; it is headers only.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final

from ...datasets.build import find_toolchain
from ...generator import BuildError
from .processes import run, scratch_folder
from .schema import Solution, read_json, write_json

FLAGS: Final = (
    "-O3", "-std=c++17", "-DNDEBUG", "--expt-relaxed-constexpr", "-gencode=arch=compute_90a,code=sm_90a",
    "-Xcompiler", "-fPIC",
)  # fmt: skip
"""nvcc's flags for every candidate. Without NDEBUG, CUTLASS's assertions make ptxas serialise WGMMA."""
LINK_FLAGS: Final = ("-shared", "-cudart", "static", "-Xlinker", "-Bsymbolic", "-Xlinker", "--exclude-libs,ALL")
COMPILE_SECONDS: Final = 900.0
CHECK_VERSION: Final = 2
"""Raised when the rules change, so that cached verdicts are made anew."""

_LIBRARIES: Final = (
    "cublas", "cudnn", "cusparse", "cusolver", "cufft", "curand", "cutensor(?!map)", "cudss", "nvblas", "nvrtc",
    "nvjitlink", "nvptxcompiler", "nvvm", "nvinfer", "nccl", "nvshmem", "mathdx", "cupti",
)  # fmt: skip
"""Prefixes of names in vendors' libraries, case aside. The driver's ``CUtensorMap`` is none."""
_VENDOR: Final = re.compile(rf"(?<![A-Za-z0-9])(?:lib)?(?:{'|'.join(_LIBRARIES)})\w*", re.IGNORECASE)
_VENDOR_HEADER: Final = re.compile(
    rf"(?:^|/)(?:{'|'.join(_LIBRARIES)})[^/]*\.(?:h|hpp|cuh)$|/(?:torch|ATen|c10)/", re.IGNORECASE
)
_LOADED_CODE: Final = re.compile(r"cu(?:da)?(?:Module|Library|Link)(?:Load|Create|AddData|AddFile)\w*")

_FORBIDDEN: Final = {
    "loads code that the checker cannot see": re.compile(
        r"_*(?:libc_)?dl(?:m?open|v?sym|addr|info|_iterate_phdr)\w*|cu(?:da)?(?:Module|Library|Link)(?:Load|Create|Add)\w*"
        r"|cu(?:da)?GetProcAddress\w*"
    ),
    "starts processes": re.compile(r"system|popen|v?fork|clone\d?|posix_spawnp?|exec[lv]\w*|daemon|unshare|setns"),
    "reaches into memory or the kernel": re.compile(
        r"mprotect|pkey_\w+|mmap(?:64)?|mremap|ptrace|process_vm_\w+|syscall|personality|memfd_create|prctl|_r_debug"
    ),
    "handles signals": re.compile(r"kill|tkill|tgkill|raise|signal|sigaction|sigprocmask|alarm|setitimer|timer_create"),
    "opens files or connections": re.compile(
        r"f?open(?:at)?(?:64)?|freopen(?:64)?|creat(?:64)?|fdopen|opendir|readlink\w*|p?(?:read|write)v?(?:64)?|dup[23]?"
        r"|v?dprintf|send(?:file(?:64)?|to|msg)?|splice|vmsplice|socket|connect|shm_open|pipe2?|_ZN?K?St\d+basic_[io]?f(?:stream|ilebuf)\w*"
    ),
    "looks at its environment": re.compile(r"(?:secure_)?getenv|environ|setenv|putenv|program_invocation\w*"),
    "controls the profiler": re.compile(r"cu(?:da)?Profiler\w+|cupti\w+"),
}
"""Undefined symbols of the object that no kernel's launch code needs, by what they would allow."""

_RESERVED: Final = re.compile(
    r"cu(?:da)?[A-Z]\w*|__cuda\w+|cupti\w+|nvtx\w+|clock_gettime|gettimeofday|malloc|free|mem(?:cpy|set|cmp)|dl\w+|"
    r"pthread_\w+"
)
"""Names that belong to CUDA or the C library: defining them would replace what others call."""
_GENERATED: Final = re.compile(r"__cudaRegisterLinkedBinary\w*|__fatbinwrap\w*")
_SYSTEM_CALL: Final = re.compile(r"\t(syscall|sysenter|int\s+\$0x80)\b")


@dataclass(frozen=True)
class Finding:
    """One reason to refuse a candidate."""

    where: str
    """``source``, ``preprocessed``, ``header``, ``symbols``, ``strings``, ``instructions`` or ``build``."""
    message: str


@dataclass(frozen=True)
class Build:
    """A candidate's verdict at gate 1 and, if it was built, its library."""

    key: str
    """Hash of sources, flags and entry: the folder's name in the cache."""
    source_sha256: str
    entry: str
    findings: tuple[Finding, ...] = ()
    log: str = ""
    """What the compiler said, if it failed or warned."""
    library: str = ""
    """Absolute path; empty if it was not built."""
    binary_sha256: str = ""
    nvcc: str = ""
    seconds: float = 0.0
    """Time that preprocessing, compiling and looking took, cached or not."""
    failed: bool = False
    """True if the compiler refused it."""

    @property
    def passed(self) -> bool:
        """True if nothing was found and the library is there."""
        return not self.findings and not self.failed and bool(self.library)

    def evidence(self) -> dict[str, Any]:
        """Return what a trace keeps."""
        return {
            "passed": self.passed,
            "findings": [asdict(finding) for finding in self.findings],
            "source_sha256": self.source_sha256,
            "binary_sha256": self.binary_sha256,
            "nvcc": self.nvcc,
            "flags": list(FLAGS),
            "seconds": round(self.seconds, 2),
        }


def source_hash(solution: Solution) -> str:
    """Return the SHA-256 of a solution's files, in order of path."""
    digest = hashlib.sha256()
    for source in sorted(solution.sources, key=lambda source: source.path):
        digest.update(f"{source.path}\0{len(source.content)}\0{source.content}\0".encode())
    return digest.hexdigest()


def without_comments(text: str) -> str:
    """Blank out C++ comments and keep everything else, line breaks and string literals included."""
    pattern = re.compile(r'//(?:\\\n|[^\n])*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)

    def blank(match: re.Match[str]) -> str:
        found = match[0]
        return "\n" * found.count("\n") + " " if found.startswith("/") else found

    return pattern.sub(blank, text)


def check_sources(solution: Solution) -> list[Finding]:
    """Look for vendor libraries in the sources, without their comments."""
    findings = []
    for source in solution.sources:
        for number, line in enumerate(without_comments(source.content).splitlines(), start=1):
            match = _VENDOR.search(line)
            if match:
                findings.append(Finding("source", f"{source.path}:{number}: {match[0]} belongs to a library"))
    return findings


def check_preprocessed(text: str) -> list[Finding]:
    """Look for vendor headers and names in the preprocessor's output, nested includes included.

    System headers may mention library names (CUDA's do), so that names count only in other files.
    """
    findings: dict[str, Finding] = {}
    system = False
    for line in text.splitlines():
        marker = re.match(r'#\s*(?:line\s+)?\d+\s+"((?:[^"\\]|\\.)*)"', line)
        if marker:
            header = marker[1]
            system = (
                re.search(r"(?:^|/)usr/(?:include|lib|local/cuda[^/]*)/|/targets/x86_64-linux/include/", header)
                is not None
            )
            if _VENDOR_HEADER.search(header):
                name = PurePosixPath(header).name
                findings.setdefault(header, Finding("header", f"{name} is a library's header"))
            continue
        match = None if system else _VENDOR.search(line)
        if match:
            findings.setdefault(match[0], Finding("preprocessed", f"{match[0]} belongs to a library"))
    return list(findings.values())


def check_symbols(undefined: Iterable[str], defined: Iterable[str]) -> list[Finding]:
    """Look at the symbols of a compiled object, before the CUDA runtime is linked to it."""
    findings = []
    for symbol in sorted(set(undefined)):
        # Fortified headers call __dprintf_chk where the source says dprintf.
        name = re.sub(r"^__(\w+)_chk$", r"\1", symbol.split("@")[0])
        if _VENDOR.match(name):
            findings.append(Finding("symbols", f"calls {name}, which belongs to a library"))
        for reason, pattern in _FORBIDDEN.items():
            if pattern.fullmatch(name):
                findings.append(Finding("symbols", f"calls {name}: {reason}"))
    return findings + [
        Finding("symbols", f"defines {symbol}, which is not its to define")
        for symbol in sorted(set(defined))
        if _RESERVED.fullmatch(symbol) and not _GENERATED.fullmatch(symbol)
    ]


def check_strings(content: bytes) -> list[Finding]:
    """Look at the texts in a compiled object for names of libraries and of functions that load code."""
    found: dict[str, None] = {}
    for text in re.findall(rb"[\x20-\x7e]{5,}", content):
        decoded = text.decode()
        for pattern in (_VENDOR, _LOADED_CODE):
            match = pattern.search(decoded)
            if match:
                found.setdefault(match[0])
    return [Finding("strings", f"holds the text {name}") for name in found]


def _symbols(path: Path) -> tuple[list[str], list[str]]:
    """Names of undefined and of global defined symbols."""
    listing = _tool(["nm", "-P", "-g", str(path)])
    undefined: list[str] = []
    defined: list[str] = []
    for line in listing.splitlines():
        name, _, rest = line.partition(" ")
        (undefined if rest[:1] in ("U", "w", "v") else defined).append(name)
    return undefined, defined


def _check_instructions(path: Path) -> list[Finding]:
    listing = _tool(["objdump", "-d", "--no-show-raw-insn", str(path)])
    return [
        Finding("instructions", f"host code contains {match}") for match in sorted(set(_SYSTEM_CALL.findall(listing)))
    ]


def _tool(command: list[str]) -> str:
    program = shutil.which(command[0])
    if program is None:
        raise BuildError(f"{command[0]} is missing; install binutils")
    done = subprocess.run([program, *command[1:]], capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        raise BuildError(f"{command[0]} failed: {done.stderr.strip()[-500:]}")
    return done.stdout


@dataclass
class Builder:
    """Builds candidates and remembers them in a folder.

    Parameters
    ----------
    cache
        Folder of builds, one a hash of source; may be carried to a machine without CUTLASS's headers.
    """

    cache: Path
    jobs: int = 1
    _tools: tuple[str, str, list[str]] | None = field(default=None, init=False)

    def build(self, solution: Solution) -> Build:
        """Run gate 1 on a solution, or return what is remembered.

        Raises
        ------
        BuildError
            If there is no compiler and the build is not remembered. A solution that does not compile is no error.
        """
        key = self._key(solution)
        folder = self.cache / key
        remembered = folder / "build.json"
        if remembered.is_file():
            return _read(remembered)
        build = self._make(solution, key, folder)
        values = asdict(build)
        values["library"] = Path(build.library).name if build.library else ""
        write_json(remembered, values)
        return build

    def build_all(self, solutions: Iterable[Solution]) -> list[Build]:
        """Build several solutions, ``jobs`` at a time."""
        with ThreadPoolExecutor(max(1, self.jobs)) as pool:
            return list(pool.map(self.build, solutions))

    @staticmethod
    def _key(solution: Solution) -> str:
        kind = [solution.language, solution.binding or "", *solution.dependencies, solution.entry_point]
        parts = [source_hash(solution), *kind, *FLAGS, *LINK_FLAGS, str(CHECK_VERSION)]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]

    def _toolchain(self) -> tuple[str, str, list[str]]:
        """Return compiler, its version, and flags for CUTLASS's headers if there are any."""
        if self._tools is None:
            try:
                tools = find_toolchain()
                folders = (tools.cutlass / "include", tools.cutlass / "tools" / "util" / "include")
                self._tools = tools.nvcc, tools.nvcc_version, [f"-I{folder}" for folder in folders]
            except BuildError:
                nvcc = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
                if nvcc is None:
                    raise
                text = _tool([nvcc, "--version"])
                version = re.search(r"release [\d.]+, V([\d.]+)", text)
                self._tools = nvcc, version[1] if version else "unknown", []
        return self._tools

    def _make(self, solution: Solution, key: str, folder: Path) -> Build:
        began = time.monotonic()
        sha = source_hash(solution)
        findings = _check_kind(solution) + check_sources(solution)

        def verdict(**values: Any) -> Build:
            return Build(key, sha, solution.entry_symbol, tuple(findings), seconds=time.monotonic() - began, **values)

        if findings:
            return verdict()
        nvcc, version, includes = self._toolchain()
        with scratch_folder("build") as scratch:
            units = _write_sources(solution, scratch)
            objects = []
            for number, unit in enumerate(units):
                common = [nvcc, *FLAGS, *includes, "-I."]
                expanded = run([*common, "-E", unit, "-o", f"{number}.ii"], scratch, COMPILE_SECONDS)
                if expanded.returncode == 0:
                    text = (scratch / f"{number}.ii").read_text(encoding="utf-8", errors="replace")
                    findings += check_preprocessed(text)
                    if findings:
                        return verdict(nvcc=version)
                compiled = run([*common, "-c", unit, "-o", f"{number}.o"], scratch, COMPILE_SECONDS)
                if compiled.returncode != 0 or compiled.timed_out:
                    limit = f"\nthe compiler was ended after {COMPILE_SECONDS:.0f} s" if compiled.timed_out else ""
                    return verdict(nvcc=version, failed=True, log=compiled.output + limit)
                objects.append(f"{number}.o")
                path = scratch / f"{number}.o"
                findings += (
                    check_symbols(*_symbols(path)) + check_strings(path.read_bytes()) + _check_instructions(path)
                )
            if findings:
                return verdict(nvcc=version)
            linked = run([nvcc, *FLAGS[4:5], *LINK_FLAGS, *objects, "-o", "candidate.so"], scratch, COMPILE_SECONDS)
            if linked.returncode != 0:
                return verdict(nvcc=version, failed=True, log=linked.output)
            if solution.entry_symbol not in _exported(scratch / "candidate.so"):
                message = (
                    f"there is no function {solution.entry_symbol} with C linkage; export extern "
                    f'"C" void {solution.entry_symbol}'
                    "(const void* A, const void* B, void* C, int M, int N, int K, cudaStream_t stream)"
                )
                findings.append(Finding("build", message))
                return verdict(nvcc=version)
            folder.mkdir(parents=True, exist_ok=True)
            library = folder / "candidate.so"
            shutil.copyfile(scratch / "candidate.so", library)
        binary = hashlib.sha256(library.read_bytes()).hexdigest()
        return verdict(nvcc=version, library=str(library.resolve()), binary_sha256=binary, log=compiled.output[-4000:])


def _read(path: Path) -> Build:
    """Read a remembered build; its library lies beside it."""
    values = read_json(path)
    values["findings"] = tuple(Finding(**finding) for finding in values["findings"])
    if values["library"]:
        values["library"] = str((path.parent / values["library"]).resolve())
    return Build(**values)


def _exported(library: Path) -> set[str]:
    listing = _tool(["nm", "-D", "-P", "--defined-only", str(library)])
    return {line.partition(" ")[0] for line in listing.splitlines()}


def _check_kind(solution: Solution) -> list[Finding]:
    """Refuse solutions that are no CUDA C++ with a plain C interface."""
    findings = []
    if solution.language not in ("cuda", "cpp"):
        findings.append(Finding("build", f"the language is {solution.language}; CUDA C++ is checked"))
    if solution.binding is not None:
        findings.append(Finding("build", f"the binding is {solution.binding}; a plain C function is checked"))
    if any(name.lower() not in ("cutlass", "cuda") for name in solution.dependencies):
        findings.append(Finding("build", f"it depends on {', '.join(solution.dependencies)}; CUTLASS alone is allowed"))
    return findings


def _write_sources(solution: Solution, folder: Path) -> list[str]:
    """Write a solution's files; return those to compile."""
    units = []
    for source in solution.sources:
        path = folder / source.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source.content, encoding="utf-8")
        if path.suffix in (".cu", ".cpp", ".cc", ".cxx"):
            units.append(source.path)
    return units


def useful_lines(log: str, most: int = 12) -> list[str]:
    """Return the lines of a compiler's output that say what is wrong, the first ``most`` of them."""
    return list(_error_lines(log))[:most] or [line for line in log.splitlines() if line.strip()][-most:]


def _error_lines(log: str) -> Iterator[str]:
    seen = set()
    for line in log.splitlines():
        text = line.strip()
        if re.search(r"\b(error|fatal|undefined reference|multiple definition)\b", text) and text not in seen:
            seen.add(text)
            yield text[:400]


def describe(build: Build) -> str:
    """Return one line about a verdict."""
    if build.passed:
        return "built"
    reasons = [f"{finding.where}: {finding.message}" for finding in build.findings[:3]]
    return "; ".join(reasons or useful_lines(build.log, 1) or ["did not build"])


def load_evidence(text: str) -> dict[str, Any]:
    """Parse the JSON evidence in the log of a trace; empty if it is something else."""
    try:
        values = json.loads(text)
    except ValueError:
        return {}
    return values if isinstance(values, dict) else {}
