"""What guesses, what checks, what decides: every name that `--draft`, `--verify` and `--control` take, once.

`tools/write_tables.py` writes the tables of docs/guides/speculation.md from here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from paceline.registry import Choice, Registry


@dataclass(frozen=True, kw_only=True)
class DrafterChoice(Choice):
    """A drafter's name; its factory takes the `Setting` and the argument, "" if there is none.

    `use`: what it is good for. `loads`: what it brings into memory beside the target. `draws`: its guesses are drawn by
    a distribution of its own, and a verifier that weighs such distributions takes one such drafter. `alone`: why it
    must have no company. `verifier`: "module:class" of the one it brings along. `prediction`: whether it reads a
    prediction.
    """

    use: str = ""
    loads: Literal["nothing", "copy", "models"] = "models"
    draws: bool = False
    alone: str = ""
    verifier: str = ""
    prediction: Literal["unread", "read", "needed"] = "unread"


@dataclass(frozen=True, kw_only=True)
class VerifierChoice(Choice):
    """A verifier's name; its factory takes the argument if there may be one. What it promises it says itself."""


@dataclass(frozen=True, kw_only=True)
class ControllerChoice(Choice):
    """A controller's name; its factory takes how many guesses a round may have at most.

    `measures`: it wants what this machine was measured to take, and the factory is called as `OptimalController` is.
    """

    measures: bool = False


DRAFTERS = Registry(
    "draft",
    (
        DrafterChoice(
            name="auto",
            factory="paceline.draft.auto:make_auto",
            how="the mix of `predicted` and `suffix`, and a much smaller model of the target's family "
            "if one is on this disk",
            brief="a mix of all that is there",
            use="not having to choose",
            prediction="read",  # its model, if it has one, makes room for another that draws
        ),
        DrafterChoice(
            name="off",
            factory="paceline.draft.base:NoDrafter.of",
            how="nothing: plain decoding",
            use="comparing",
            loads="nothing",
            alone="turns guessing off",
        ),
        DrafterChoice(
            name="ngram",
            factory="paceline.draft.lookup.ngram:NgramDrafter.of",
            how="finding the last words earlier in the text",
            brief="looks the text up in itself",
            use="anything that repeats its prompt; the simplest",
            loads="nothing",
        ),
        DrafterChoice(
            name="suffix",
            factory="paceline.draft.lookup.suffix:SuffixDrafter.of",
            argument="[FILE]",
            how="the same, by a suffix automaton with counts: the likeliest continuations as a tree; with FILE also in "
            "earlier replies, kept there (bounded, checked, written whole)",
            brief="the same with counts; in earlier replies too, which it keeps in FILE",
            use="edits, retrieval, agents; with FILE replies that resemble each other over days",
            loads="nothing",
        ),
        DrafterChoice(
            name="recycle",
            factory="paceline.draft.lookup.recycle:RecycleDrafter.of",
            how="what the target thought likely after this token the last time, in this request or an earlier one",
            brief="learns from all requests of the loaded model",
            use="filling up where nothing else is known",
            loads="nothing",
        ),
        DrafterChoice(
            name="predicted",
            factory="paceline.draft.lookup.predicted:PredictedDrafter.of",
            how='your own expectation of the reply: `--prediction FILE`, or `prediction="…"` in Python',
            brief="see --prediction",
            use="edits: give the text as it was",
            loads="nothing",
            prediction="needed",
        ),
        DrafterChoice(
            name="staged",
            factory="paceline.draft.compose.staged:make_staged",
            argument="SRC",
            wants="the model it drafts for",
            example="qwen2.5-coder-0.5b",
            how="a model that is itself drafted by look-up: the same guesses in fewer forwards",
            use="large draft models",
            draws=True,
        ),
        DrafterChoice(
            name="self",
            factory="paceline.draft.model.self:make_self",
            argument="[TYPE/N]",
            how="the target itself, packed coarser (`self` is `self:q4`), or its first N layers",
            brief="the target at 4 bits, if it has more; self:q8; self:N, its first N layers",
            use="targets at 8 bits or more: a copy that is no smaller is refused, as for the default model; early "
            "layers rarely agree",
            loads="copy",
            draws=True,
        ),
        DrafterChoice(
            name="ensemble",
            factory="paceline.draft.compose.ensemble:make_ensemble",
            argument="A+B",
            wants="2 to 3 different models",
            example="qwen2.5-coder-0.5b+PATH",
            how="2 or 3 models as one distribution, weighed by their record",
            use="two drafts that are good at different things",
            draws=True,
        ),
        DrafterChoice(
            name="branches",
            factory="paceline.draft.compose.ensemble:make_branches",
            argument="A+B",
            wants="2 to 3 different models",
            example="qwen2.5-coder-0.5b+PATH",
            how="the same models, a branch each",
            use="where checking is cheap",
            draws=True,
        ),
        DrafterChoice(
            name="lookahead",
            factory="paceline.lab.lookahead:LookaheadDrafter.of",
            how="n-grams that the target's own rows suggest",
            brief="learns from all requests of the loaded model",
            use="machines with idle arithmetic; poor on CPUs",
            loads="nothing",
        ),
        DrafterChoice(
            name="best_of",
            factory="paceline.lab.best_of:make_best_of",
            argument="SRC",
            wants="the model that draws candidates",
            example="qwen2.5-coder-0.5b",
            how="not speculation: the best of a draft's continuations by the target's likelihood. **Lossy**",
            brief="lossy",
            use="comparing with texts that recommend it",
            draws=True,
            alone="chooses among its own candidates",
            verifier="paceline.lab.best_of_verifier:BestOfVerifier",
        ),
    ),
)

VERIFIERS = Registry(
    "verify",
    (
        VerifierChoice(
            name="coupled",
            factory="paceline.verify.coupled:CoupledVerifier",
            how="the target draws its own token everywhere with chance keyed by seed and position; a guess is right "
            "if it is that token",
        ),
        VerifierChoice(
            name="rejection",
            factory="paceline.verify.tree:RejectionVerifier",
            how="accept with min(1, p/q), else draw from the rest (Leviathan et al.)",
        ),
        VerifierChoice(
            name="block",
            factory="paceline.verify.block:BlockVerifier",
            how="the same for a whole chain at once: never accepts less (Sun et al.)",
        ),
        VerifierChoice(
            name="tree",
            factory="paceline.verify.tree:TreeVerifier",
            how="several drawn guesses for one place, without replacement",
        ),
        VerifierChoice(
            name="greedy_tree",
            factory="paceline.verify.tree:GreedyTreeVerifier",
            how="the likeliest guesses and one drawn from the rest",
        ),
        VerifierChoice(
            name="typical",
            factory="paceline.verify.lossy:TypicalVerifier",
            how="accept what is not untypical (Medusa)",
            brief="lossy",
        ),
        VerifierChoice(
            name="lenient",
            factory="paceline.verify.lossy:LenientVerifier.of",
            argument="L",
            wants="a lenience above 0 and at most 1",
            how="accept with min(1, p/(L q)), 0 < L ≤ 1",
            brief="lossy below 1",
            example="0.8",
        ),
    ),
)

CONTROLLERS = Registry(
    "control",
    (
        ControllerChoice(
            name="optimal",
            factory="paceline.control.optimal:OptimalController",
            how="what pays: the time of checking M tokens and of a draft step are measured on this machine once, "
            "acceptance is watched by source and depth, and prices follow from both; at most `--draft-tokens K`",
            brief="what pays on this machine, which it measures",
            measures=True,
        ),
        ControllerChoice(
            name="fixed",
            factory="paceline.control.fixed:FixedController",
            how="exactly `--draft-tokens K` a round",
        ),
        ControllerChoice(
            name="confidence",
            factory="paceline.lab.confidence:ConfidenceController",
            how="as long as a draft model finds its guess likely enough, by its distribution (at temperature 0: its "
            "top probability). The threshold follows what is kept: up while it is less than 80 %, else down",
        ),
        ControllerChoice(
            name="entropy",
            factory="paceline.engine.loading:entropy_controller",
            how="the same by the entropy H of that distribution: while 1 - sqrt(0.2 H) is above the threshold "
            "(AdaEDL). Drafts step by step in Python, for comparison",
        ),
        ControllerChoice(
            name="ema",
            factory="paceline.lab.ema:EmaController",
            how="one more above 80 % accepted, one less below 60 %: the often quoted rule",
        ),
        ControllerChoice(
            name="schedule",
            factory="paceline.lab.schedule:ScheduleController",
            how="8, then 4, then 2 by position in the text: the other often quoted rule",
        ),
    ),
)


def register_drafter(
    name: str, factory: Callable[..., object], *, how: str = "", draws: bool = False, prediction: bool = False
) -> None:
    """Make a drafter known by `name`, for `--draft` and `LLM(draft=…)`.

    Args:
        factory: makes it for a `Setting`; what follows a colon in `name:argument` comes second, else "". It returns a
            `paceline.Drafter`, or an object with the methods `propose`, `observe` and `release`.
        how: what it guesses by, for `--help`.
        draws: its drafts have `distributions` where `Setting.draws` is not "shared". Then it is the only such drafter.
        prediction: it reads `View.prediction`.

    Raises:
        UsageError: the name has a comma, slash, colon or plus.
    """
    reads: Literal["read", "unread"] = "read" if prediction else "unread"
    DRAFTERS.register(
        DrafterChoice(name=name, factory=factory, argument="[ARGUMENT]", brief=how, draws=draws, prediction=reads)
    )


def register_verifier(name: str, factory: Callable[[], object], *, how: str = "") -> None:
    """Make a verifier known by `name`, for `--verify` and `LLM(verify=…)`.

    Args:
        factory: makes it; it has what `paceline.verify.base.Verifier` has. Replies, audits and benchmarks say of it
            what its `lossless` and `reproducible` promise.
        how: how it checks, for `--help`.

    Raises:
        UsageError: the name has a comma, slash, colon or plus.
    """
    VERIFIERS.register(VerifierChoice(name=name, factory=factory, brief=how))


def register_controller(name: str, factory: Callable[[int], object], *, how: str = "") -> None:
    """Make a controller known by `name`, for `--control` and `LLM(control=…)`.

    Args:
        factory: makes it for the most guesses that a round may have; it has what `paceline.control.base.Controller`
            has.
        how: how it decides, for `--help`.

    Raises:
        UsageError: the name has a comma, slash, colon or plus.
    """
    CONTROLLERS.register(ControllerChoice(name=name, factory=factory, brief=how))
