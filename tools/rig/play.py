"""Play recorded replies through the real engine: its round, controller, mix, drafters and verifier.

Only the two models are recordings, and time is a table's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from paceline.choices import CONTROLLERS
from paceline.control.base import Controller
from paceline.control.optimal import OptimalController
from paceline.core.aliases import Floats
from paceline.core.request import Event, SamplingParams, View
from paceline.core.round import Round
from paceline.core.tree import Draft, Verdict
from paceline.draft.base import Drafter, weighing
from paceline.draft.compose.mix import MixDrafter
from paceline.draft.lookup.predicted import PredictedDrafter
from paceline.draft.lookup.recycle import RecycleDrafter
from paceline.draft.lookup.suffix import SuffixDrafter
from paceline.draft.model.drafter import ModelDrafter
from paceline.engine.calibrate import ROWS
from paceline.engine.engine import Engine
from paceline.engine.sequence import Request
from paceline.errors import UsageError
from paceline.estimate.cost import CostTable
from paceline.testing import ByteTokenizer
from paceline.verify.coupled import CoupledVerifier
from rig.machines import Clock, Machine, seconds
from rig.models import CONTEXT, RecordedDraft, RecordedTarget
from rig.recording import Recording, Text

MOST = 16  # guesses of a round, as `--draft-tokens` has it
MODEL = "draft"  # what the recorded draft is called among the sources
LOOKUPS = ("predicted", "suffix", "recycle")
AUTO = f"predicted,suffix,{MODEL}"  # what `--draft auto` has

Control = Callable[[Machine, Drafter], Controller]
"""Makes a controller for a machine and a drafter."""


def control_of(name: str) -> Control:
    """Return what makes the controller of a name: that of the command line, `fixed:K` included.

    Raises:
        UsageError: there is none, or it asks for what was not recorded.
    """
    base, _, length = name.partition(":")
    if base == "optimal" and not length:
        return optimal
    if base not in CONTROLLERS or base == "entropy" or (length and not (base == "fixed" and length.isdecimal())):
        known = ", ".join(["optimal", *(each for each in CONTROLLERS if each not in ("optimal", "entropy")), "fixed:K"])
        raise UsageError(f"a control must be one of {known}, got `{name}`")
    return lambda machine, drafter: CONTROLLERS[base].make(int(length or MOST))


def optimal(machine: Machine, drafter: Drafter) -> Controller:
    """Return the product's controller, calibrated on this machine."""
    cost = CostTable({rows: machine.target(rows) for rows in ROWS})
    steps = {MODEL: machine.draft(1)} if MODEL in drafter.sources else {}
    return OptimalController(cost, drafter.sources, most=MOST, step_seconds=steps, weighing=weighing(drafter))


class Paced(CoupledVerifier):
    """Lets the time pass that a round spends beside its forwards."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def verify(self, draft: Draft, logits: Floats, view: View) -> Verdict:
        """See `Verifier.verify`."""
        self._clock.round(drafted=draft.drafted > 0)
        return super().verify(draft, logits, view)


@dataclass(frozen=True, slots=True)
class Played:
    """One reply: `tokens` after the first, what they took (see `Clock`), and every round.

    `trace` is of decoding and of what the draft read before the first token, as in `paceline bench run`.
    """

    text: Text
    tokens: int
    trace: Counter[tuple[str, int]]
    rounds: tuple[Round, ...]
    reason: str

    def speedup(self, machine: Machine) -> float:
        """Return tokens per second against plain decoding."""
        return self.tokens * (machine.target(1) + machine.outside) / seconds(self.trace, machine)


class Player:
    """One process: what its drafters and its controller learn of a reply stays for the next.

    Args:
        draft: names with commas between them, look-ups first.
        is_quiet: time passes without noise.
    """

    def __init__(
        self,
        recording: Recording,
        machine: Machine,
        control: Control = optimal,
        *,
        draft: str = AUTO,
        seed: int = 0,
        is_quiet: bool = False,
    ) -> None:
        self.clock = Clock(machine, seed, is_quiet)
        self._target, self._draft = RecordedTarget(recording, self.clock), RecordedDraft(recording, self.clock)
        vocab = self._target.spec.vocab
        self.drafter = self._drafter(draft, vocab)
        self.controller = control(machine, self.drafter)
        words = ByteTokenizer([b"."] * vocab, eos_ids=recording.ends)
        self.engine = Engine(
            self._target, words, self.drafter, self.controller, Paced(self.clock), context=CONTEXT, slots=1
        )
        self.engine.parts = replace(self.engine.parts, clock=self.clock)
        self._count = 0

    def play(self, text: Text) -> Played:
        """Reply to one prompt; the reply is the recorded one, however it is drafted for."""
        self._target.tell(text)
        self._draft.tell(text)
        params = SamplingParams(max_tokens=text.max_tokens)
        prediction = text.prediction.tolist() if len(text.prediction) else None
        self.engine.add(Request(self._count, text.prompt.tolist(), params, prediction))
        self._count += 1
        said, rounds, trace = list[int](), list[Round](), Counter[tuple[str, int]]()
        while not self.engine.is_idle:
            before, is_prompt = Counter(self.clock.trace), not said
            for event in self.engine.step():
                said += event.tokens
                rounds.append(_round_of(event))
            took = self.clock.trace - before
            trace.update({what: n for what, n in took.items() if what[0] == "draft"} if is_prompt else took)
        assert said == text.reply.tolist(), f"{text.name}: another reply was played"
        return Played(text, len(said) - 1, trace, tuple(rounds), getattr(self.controller, "reason", ""))

    def _drafter(self, draft: str, vocab: int) -> Drafter:
        made: dict[str, Callable[[], Drafter]] = {
            "predicted": PredictedDrafter,
            "suffix": SuffixDrafter,
            "recycle": lambda: RecycleDrafter(vocab),
            MODEL: lambda: ModelDrafter(self._draft, context=CONTEXT, name=MODEL, native=False, clock=self.clock),
        }
        names = draft.split(",")
        if wrong := next((name for name in names if name not in made), None):
            raise UsageError(f"a draft must be some of {', '.join(made)}, got `{wrong}`")
        members = [made[name]() for name in names]
        return members[0] if len(members) == 1 else MixDrafter(members)


def order_of(recording: Recording, seed: int) -> Sequence[Text]:
    """Return the texts in the order of one session: 0 is that of the recording, others are shuffled."""
    texts = list(recording.texts)
    if seed:
        np.random.default_rng(seed).shuffle(texts)
    return texts


def _round_of(event: Event) -> Round:
    assert event.round is not None, event
    return event.round
