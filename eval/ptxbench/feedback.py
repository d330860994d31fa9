"""What an agent is told after a turn, as plain values for JSON.

It is made from the evidence of the gates and leaves out what would let a kernel be fitted to the checker: seeds, the
sizes of hidden cases, and where in them an output was wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...generator import DataError
from .schema import Trace
from .static import load_evidence


def feedback(evidence: Mapping[str, Any]) -> dict[str, Any]:
    """Return the feedback for one candidate.

    Parameters
    ----------
    evidence
        From :meth:`~.evaluate.Outcome.evidence`, or the log of its trace.
    """
    gates = evidence["gates"]
    result: dict[str, Any] = {
        "definition": evidence["definition"],
        "axes": evidence["axes"],
        "status": evidence["status"],
        "failed_gate": evidence["failed_gate"],
        "summary": evidence["reason"],
        "build": _build(gates["static"]),
    }
    if "correct" in gates:
        result["correctness"] = _correctness(gates["correct"])
        result["sanitizer"] = [
            {"what": item["what"], "where": item["where"], "count": item["count"]}
            for item in gates["correct"].get("memcheck", {}).get("findings", [])
        ]
    if "instruction" in gates:
        check = gates["instruction"]
        names = ("used", "reason", "static", "executed", "work_share")
        result["target_instruction"] = {name: check[name] for name in names}
    if "fast" in gates:
        result["timing"] = _timing(gates["fast"])
    return result


def feedback_of_trace(trace: Trace) -> dict[str, Any]:
    """Return the feedback for a trace.

    Raises
    ------
    DataError
        If the trace was not written by this checker.
    """
    evidence = load_evidence(trace.evaluation.log) if trace.evaluation is not None else {}
    if "gates" not in evidence:
        raise DataError(f"the trace of {trace.solution} holds no evidence of the gates")
    return feedback(evidence)


def _build(static: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "passed": static["passed"],
        "errors": list(static.get("errors", [])),
        "refused_because": [f"{finding['where']}: {finding['message']}" for finding in static["findings"]],
    }


def _correctness(check: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the gate; of a hidden case only that it is hidden, and how much of it is wrong."""
    cases = check["cases"]
    result: dict[str, Any] = {"passed": check["passed"], "reason": check["reason"], "tolerance": check["tolerance"]}
    result["cases_right"] = sum(not _is_wrong(case) for case in cases)
    wrong = next((case for case in cases if _is_wrong(case)), None)
    if wrong is None:
        return result
    sizes = {"size": "not shown"} if wrong["hidden"] else {"size": dict(wrong["axes"])}
    result["wrong_case"] = {
        **sizes,
        "inputs_changed": wrong["inputs_changed"],
        "written_outside": bool(wrong["guard_bytes"]),
        "max_absolute_error": wrong["max_absolute_error"],
        "max_relative_error": wrong["max_relative_error"],
    }
    if not wrong["hidden"]:
        names = ("row", "column", "got", "expected")
        result["wrong_case"] |= {
            "wrong_elements": wrong["wrong"],
            "unwritten_elements": wrong["unwritten"],
            "first_wrong": [{name: item[name] for name in names} for item in wrong["first"]],
        }
    return result


def _is_wrong(case: Mapping[str, Any]) -> bool:
    return bool(case["wrong"] or case["inputs_changed"] or case["guard_bytes"])


def _timing(check: Mapping[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {
        "passed": check["passed"],
        "reason": check["reason"],
        "roofline_floor_us": check["floor_us"],
    }
    ours, theirs = check.get("candidate"), check.get("cublas")
    if not check["passed"] or ours is None or theirs is None:
        return result
    time, blas = ours["latency_us"], theirs["latency_us"]
    return {
        **result,
        "time_us": time,
        "cublas_us": blas,
        "speedup": check["speedup"],
        "gap_to_cublas_us": round(time - blas, 3),
        "share_of_roofline": round(check["floor_us"] / time, 4) if time else 0.0,
        "spread": ours["spread"],
        "host_us": ours["host_us"],
        "activities": list(dict.fromkeys(ours["activities"])),
    }
