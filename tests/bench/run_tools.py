"""A run that was never made: records of two workloads with known numbers, and a rig that replies from a table."""

from dataclasses import dataclass, field
from types import SimpleNamespace as Space

from paceline.bench.ways import Played, Way
from paceline.core.round import Round
from paceline.engine.completion import Completion, Setup, Timing
from paceline.engine.metrics import SpeculationMetrics

SETTINGS = {
    "model": "tiny",
    "ways": ["ngram fixed:4", "small fixed:2"],
    "workloads": ["code", "chat"],
    "prompts": 2,
    "temperatures": [0.0],
    "max_tokens": None,
    "against": [],
    "replay": False,
    "threads": None,
}
WIDTHS = {"1": 1.0, "2": 1.1, "4": 1.3, "8": 1.8}


def spread(value):
    return {
        "count": 3,
        "median": value,
        "min": value * 0.9,
        "p25": value * 0.95,
        "p75": value * 1.05,
        "max": value * 1.1,
    }


def start(commit="abc"):
    return {
        "started": "2026-01-01T00:00:00+0000",
        "machine": {"cpu": "A <fast> one", "cores": 2, "isa": "avx2", "load_average": [0.1, 0, 0], "commit": commit},
        "file": "tiny.gguf",
        "threads": 2,
        "weight_bytes": 10**8,
        "forward": {
            "read_floor_ms": 8.0,
            "decode_over_floor": 1.25,
            "widths": {m: {"ms": spread(10 * v), "v": spread(v), "floor_ms": 8.0} for m, v in WIDTHS.items()},
        },
        "too_long": [],
    }


def reply(rate, *, source="", depths=(), difference=None, compared=True):
    """A reply of 100 tokens at `rate` tokens/s, a fifth of its rounds accepted at each depth in turn."""
    drafted = sum(tested for tested, _ in depths)
    accepted = sum(kept for _, kept in depths)
    found = {
        "tokens_per_second": rate,
        "tokens": 100,
        "rounds": 100 - accepted,
        "decode_rounds": 99 - accepted,
        "drafted": drafted,
        "accepted": accepted,
        "committed": 100,
        "prefill_seconds": 0.1,
        "reading_seconds": 0.0,
        "decode_seconds": 99 / rate,
        "draft_seconds": 20 / rate if source else 0.0,
        "verify_seconds": 70 / rate,
        "other_seconds": 9 / rate,
        "by_depth": [list(pair) for pair in depths],
        "by_source": {source: [drafted, accepted, 10, 15 / rate, 0.0]} if source else {},
        "by_rows": {"1": [10, 0.5]},
        "reason": "as asked",
    }
    return {**found, "difference": difference} if compared and source else found


def prompt(workload, index, plain, ngram, small, **more):
    return {
        "workload": workload,
        "index": index,
        "temperature": 0.0,
        "seed": index,
        "request": 1234567,
        "prompt_tokens": 40,
        "neighbour_cores": 0.0,
        "replies": {
            "plain": reply(plain),
            "ngram fixed:4": reply(ngram, source="ngram", depths=[(20, 10), (10, 5)]),
            "small fixed:2": reply(small, source="small", depths=[(40, 30)]),
        },
        "peers": {},
        **more,
    }


def prompts():
    return [
        prompt("code", 0, 10.0, 20.0, 15.0),
        prompt("chat", 0, 10.0, 10.0, 12.0),
        prompt("code", 1, 20.0, 40.0, 30.0),
        prompt("code", 2, 10.0, 20.0, 15.0),
    ]


def completion(tokens, rate=10.0):
    timing = Timing(0.0, 0.1, (len(tokens) - 1) / rate, 0.0, 0.0, 0.0)
    return Completion(Setup("m", (), "coupled", "fixed"), "", list(tokens), "length", 3, SpeculationMetrics(), timing)


def round_of(drafted, accepted, *, committed=1, censored=False, rows=1, by_source=None, spent=None, verify=0.25):
    return Round(
        tuple(drafted), tuple(accepted), by_source or {}, committed, censored, rows, spent or {}, 0.0, verify, 0.0
    )


@dataclass
class TableRig:
    """Plays no model: what a way replies is in `table`, plain decoding by the name "plain"."""

    ways: list[Way]
    table: dict
    comparable: bool = True
    played: list = field(default_factory=list)
    asked: list = field(default_factory=list)

    @property
    def llm(self):
        def encode(text, chat):
            self.asked.append(text)
            return [1, 2, 3]

        return Space(encode=encode)

    def is_comparable(self, way, temperature):
        return self.comparable

    def reply(self, way, tokens, params):
        name = "plain" if way is None else way.name
        self.played.append(name)
        return Played(completion(self.table[name]), [], "as asked")
