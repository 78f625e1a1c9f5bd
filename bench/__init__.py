"""Benchmarks: `python -m bench [NAME …] [--quick] [--json]`.

A figure counts only as a ratio to a reference measured in the same run, interleaved; absolute numbers depend on the
machine. Benchmarks are not tests.
"""
