"""The package as a whole: public names, import cost, what is shipped, and which folder may import which."""

import ast
import re
import subprocess
import sys
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest

import cutlass_ranker

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("generator", "features", "datasets", "models", "selector", "eval")
MAY_IMPORT = {
    "generator": set(),
    "features": {"generator"},
    "datasets": {"generator", "features"},
    "models": {"generator", "features", "datasets"},
    "selector": {"generator", "features", "models"},
    "eval": {"generator", "features", "datasets", "models", "selector"},
}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def run(code: str) -> str:
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return result.stdout.strip()


def test_importing_is_quick_and_light() -> None:
    heavy = ("torch", "xgboost", "pandas", "pyarrow", "numpy", "sklearn", "optuna", "matplotlib")
    seconds, loaded = run(
        "import time; start = time.process_time(); import cutlass_ranker, sys; spent = time.process_time() - start;"
        f"print(spent, [name for name in {heavy} if name in sys.modules])"
    ).split(" ", 1)
    assert float(seconds) < 0.5
    assert loaded == "[]"


def test_selecting_loads_numpy_but_no_framework_and_no_tables() -> None:
    loaded = run(
        "import sys; from cutlass_ranker import select_kernel; select_kernel(8192, 7168, 5120);"
        "print([n for n in ('torch', 'xgboost', 'pandas', 'pyarrow', 'sklearn', 'scipy') if n in sys.modules])"
    )
    assert loaded == "[]"


def test_every_public_name_is_there() -> None:
    fresh = run("import cutlass_ranker as c; print(all(getattr(c, n) is not None for n in c.__all__), len(c.__all__))")
    assert fresh == f"True {len(cutlass_ranker.__all__)}"
    assert set(cutlass_ranker.__all__) <= set(dir(cutlass_ranker))
    assert cutlass_ranker.select_kernel.__module__ == "cutlass_ranker.selector.select"


def test_a_name_that_does_not_exist() -> None:
    with pytest.raises(AttributeError, match="no attribute 'choose_kernel'"):
        _ = cutlass_ranker.choose_kernel


def test_every_folder_with_code_is_packaged() -> None:
    found = {path.parent.relative_to(ROOT) for folder in FOLDERS for path in (ROOT / folder).rglob("__init__.py")}
    expected = {"cutlass_ranker", *(f"cutlass_ranker.{str(path).replace('/', '.')}" for path in found)}
    assert set(PROJECT["tool"]["setuptools"]["packages"]) == expected


def test_every_file_of_the_folders_is_installed() -> None:
    """Compare the checkout with the installed package; trivial where the checkout itself is imported."""
    installed = Path(str(files("cutlass_ranker")))
    skipped = ("__pycache__", ".pyc", ".part")
    shipped = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file()]
    names = [str(path.relative_to(ROOT)) for path in shipped if not any(part in str(path) for part in skipped)]
    assert len(names) > 50
    missing = [name for name in names if not (installed / name).is_file()]
    assert missing == []
    assert (installed / "py.typed").is_file()
    assert not (installed / "tests").exists() or installed.resolve() == ROOT


def test_shipped_data_stays_small() -> None:
    data = [
        path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file() and path.suffix != ".pyc"
    ]
    assert sum(path.stat().st_size for path in data) < 25 * 2**20


@pytest.mark.parametrize("folder", FOLDERS)
def test_folders_import_only_what_the_design_allows(folder: str) -> None:
    for path in sorted((ROOT / folder).rglob("*.py")):
        depth = len(path.relative_to(ROOT / folder).parts)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                assert not any(name.name.split(".")[0] == "cutlass_ranker" for name in node.names), path
            elif isinstance(node, ast.ImportFrom):
                module = node.module or ""
                assert module.split(".")[0] != "cutlass_ranker", f"{path}: imports between folders are relative"
                if node.level == depth + 1:
                    targets = {module.split(".")[0]} if module else {name.name for name in node.names}
                    assert targets <= MAY_IMPORT[folder] | {"__version__"}, f"{path}: {targets}"


def test_the_readmes_test_command_is_what_ci_runs() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```(?:bash|sh|console)\n(.*?)```", readme, flags=re.DOTALL)
    (command,) = [block for block in blocks if "pytest" in block]
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    install = re.search(r"pip install (.*?)(?: && |\n)", command)
    tests = re.search(r"pytest (.*)", command)
    assert install is not None
    assert tests is not None
    assert install[1].strip() in ci
    assert tests[1].strip() in ci


def test_the_version_is_said_once() -> None:
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", cutlass_ranker.__version__)
