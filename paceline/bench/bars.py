"""The bars a release has to clear, and where a measured value stands against them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from paceline.bench.stats import rounded
from paceline.core.aliases import Json


@dataclass(frozen=True, slots=True)
class Bar:
    """`least` must be met, `aim` is hoped for; `model` "" holds for every model."""

    metric: str
    model: str
    least: float
    aim: float
    says: str

    @property
    def higher_is_better(self) -> bool:
        return self.aim > self.least

    def mark(self, value: float) -> str:
        """Return "aim", "pass" or "fail"."""
        sign = 1 if self.higher_is_better else -1
        if sign * value >= sign * self.aim:
            return "aim"
        return "pass" if sign * value >= sign * self.least else "fail"


BARS = (
    Bar("decode_vs_peer", "qwen2.5-coder-1.5b", 1.1, 1.4, "plain decode ÷ llama.cpp"),
    Bar("decode_vs_peer", "smollm2-135m", 1.3, 2.5, "plain decode ÷ llama.cpp"),
    Bar("prefill_vs_peer", "qwen2.5-coder-1.5b", 1.5, 3.0, "prefill of 512 tokens ÷ llama.cpp"),
    Bar("t8_vs_peer_t1", "qwen2.5-coder-1.5b", 1.4, 1.1, "t(8) ÷ llama.cpp's t(1)"),
    Bar("v4", "qwen2.5-coder-1.5b", 1.6, 1.2, "v(4), whole forward"),
    Bar("v8", "qwen2.5-coder-1.5b", 2.0, 1.5, "v(8), whole forward"),
    Bar("decode_over_floor", "", 1.3, 1.1, "decode time ÷ floor"),
    Bar("speedup_model", "qwen2.5-coder-1.5b", 1.5, 2.0, "draft model at its best fixed length ÷ plain decode"),
    Bar("outside_ms", "", 1.5, 0.5, "ms outside drafting models and the target's forward per round, worst way"),
)


def judge(model: str, values: Iterable[tuple[str, float]]) -> list[Json]:
    """Return each bar that applies to the model and was measured, with its mark."""
    measured = dict(values)
    return [
        {
            "metric": bar.metric,
            "says": bar.says,
            "value": rounded(measured[bar.metric]),
            "at_least" if bar.higher_is_better else "at_most": bar.least,
            "aim": bar.aim,
            "mark": bar.mark(measured[bar.metric]),
        }
        for bar in BARS
        if bar.metric in measured and (not bar.model or model.startswith(bar.model))
    ]
