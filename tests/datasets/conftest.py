from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

# With pytest's importlib mode a helper beside the tests is not importable by itself.
_path = Path(__file__).with_name("tables_example.py")
_spec = importlib.util.spec_from_file_location("tables_example", _path)
assert _spec is not None
assert _spec.loader is not None
_module = importlib.util.module_from_spec(_spec)
sys.modules["tables_example"] = _module
_spec.loader.exec_module(_module)
