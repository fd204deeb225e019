"""Ways to speculate, and one loaded target that plays each of them in turn.

The only place in the benchmarks that makes drafters, controllers and verifiers.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass, replace

from paceline.choices import DRAFTERS
from paceline.config import LLMConfig, make_verifier
from paceline.control.base import Controller
from paceline.control.fixed import FixedController
from paceline.core.request import SamplingParams
from paceline.core.round import Round
from paceline.draft.base import Drafter, NoDrafter, forget_texts
from paceline.engine.completion import Completion
from paceline.engine.loading import load, load_controller, load_drafter
from paceline.errors import UsageError
from paceline.kernels.native import native
from paceline.service.llm import LLM
from paceline.verify.base import Verifier

PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class Way:
    """A choice of drafters, controller and verifier, named as on the command line."""

    draft: str
    control: str = LLMConfig().control
    verify: str = LLMConfig().verify
    draft_tokens: int = LLMConfig().draft_tokens

    @property
    def name(self) -> str:
        """What tables call it; the verifier is named only where it is not the usual one."""
        control = f"{self.control}:{self.draft_tokens}" if self.control == "fixed" else self.control
        return " ".join([self.draft, control, *([self.verify] if self.verify != LLMConfig().verify else [])])

    def config(self, model: str) -> LLMConfig:
        """Return how this would be asked for of an `LLM`.

        Raises:
            UsageError: a name is unknown.
        """
        return LLMConfig.of(
            model=model, draft=self.draft, control=self.control, verify=self.verify, draft_tokens=self.draft_tokens
        )


def ways_of(drafts: Iterable[str], controls: Iterable[str], verifiers: Iterable[str], draft_tokens: int) -> list[Way]:
    """Return every combination; `fixed:K` is the fixed controller at its own length.

    Raises:
        UsageError: a control has a length that is none, or plain decoding is named as a drafter.
    """
    found: list[Way] = []
    verifiers = list(verifiers)
    for draft in drafts:
        if draft == "off":
            raise UsageError("plain decoding is always measured, got `--draft off`", hint="leave it out")
        for control in controls:
            name, colon, length = control.partition(":")
            if colon and (name != "fixed" or not length.isdecimal() or not 1 <= int(length) <= 64):
                raise UsageError(f"a control is a name, or fixed:K with K from 1 to 64, got `{control}`")
            found += [Way(draft, name, verify, int(length) if colon else draft_tokens) for verify in verifiers]
    return list(dict.fromkeys(found))


def draft_model(drafts: Iterable[str]) -> str | None:
    """Return the first draft that is a model rather than the name of a drafter, None if there is none."""
    named = (part.strip() for draft in drafts for part in draft.split(","))
    return next((part for part in named if DRAFTERS.split(part)[0] is None), None)


@dataclass(frozen=True, slots=True)
class Player:
    """What one way puts into a round."""

    drafter: Drafter
    controller: Controller
    verifier: Verifier


@dataclass(frozen=True, slots=True)
class Played:
    """A reply with every round that made it, and what the controller said of the last."""

    completion: Completion
    rounds: list[Round]
    reason: str


class Rig:
    """One target, loaded once, and a player for each way and temperature.

    Drafters and controllers that learn have a player of their own at each temperature: with one for all, they would
    have seen a prompt's reply before. What other prompts left in a drafter's tables is emptied before each, so that
    every reply is a first one. Draft models are loaded once for all players.
    """

    def __init__(self, llm: LLM, pool: native.Pool, ways: Iterable[Way], temperatures: Iterable[float]) -> None:
        self.llm, self.ways = llm, list(ways)
        self._pool, self._load = pool, functools.cache(load)
        self._plain = Player(NoDrafter(), FixedController(0), make_verifier(LLMConfig(draft="off")))
        self._players = {(way, t): self._player(way) for way in self.ways for t in temperatures}

    def verifier(self, way: Way, temperature: float) -> Verifier:
        return self._players[way, temperature].verifier

    def is_comparable(self, way: Way, temperature: float) -> bool:
        """Say whether a way's tokens must be those of plain decoding."""
        verifier = self.verifier(way, temperature)
        return verifier.lossless and (verifier.reproducible or temperature == 0)

    def reply(self, way: Way | None, tokens: list[int], params: SamplingParams) -> Played:
        """Reply to a prompt; `None` decodes without speculation."""
        player = self._plain if way is None else self._players[way, params.temperature]
        forget_texts(player.drafter)
        engine = self.llm.engine
        parts = replace(engine.parts, drafter=player.drafter, controller=player.controller, verifier=player.verifier)
        with engine.playing(parts):
            stream = self.llm.stream(tokens, params)
            rounds = [event.round for event in stream if event.round is not None]
            return Played(stream.completion, rounds, player.controller.reason)

    def _player(self, way: Way) -> Player:
        config = replace(way.config(self.llm.config.model), draft_quant=self.llm.config.draft_quant, slots=1)
        target = self.llm.target
        drafter = load_drafter(config, target, self._pool, progress=False, load=self._load)
        controller, _ = load_controller(config, target, drafter, self._pool, progress=False)
        return Player(drafter, controller, make_verifier(config))
