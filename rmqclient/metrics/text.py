"""Text: families in the text format of Prometheus, version 0.0.4."""

from __future__ import annotations

from collections.abc import Iterable

from rmqclient.metrics.families import Family, Point

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def exposition(families: Iterable[Family]) -> str:
    """Return families as text; each has its ``HELP`` and ``TYPE`` once, also one without a series."""
    lines: list[str] = []
    for family in families:
        metric = family.metric
        lines.append(f"# HELP {metric.name} {_escaped(metric.meaning)}")
        lines.append(f"# TYPE {metric.name} {metric.kind.value}")
        lines += [_line(metric.name, point) for point in family.points]
    return "\n".join(lines) + "\n"


def _line(name: str, point: Point) -> str:
    labels = ",".join([f'{label}="{_quoted(value)}"' for label, value in point.labels.items()])
    return f"{name}{point.suffix}{{{labels}}} {_number(point.value)}"


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else repr(float(value))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', '\\"')
