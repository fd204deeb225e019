"""The target drafts for itself: with its own first layers, or with a re-quantised copy.

Layers share the target's packed weights and keep a cache of their own. The first layers of a model not trained for
early exits (LayerSkip 2404.16710) rarely agree with the whole, so a coarser copy is the better draft wherever the
target is not coarse itself (self-drafts by precision: ML-SpecQD 2503.13565). Plain `self` is the copy at 4 bits.
"""

from __future__ import annotations

from dataclasses import replace

from paceline.config import QUANTS
from paceline.draft.base import Drafter, Loaded, Setting
from paceline.draft.model.drafter import ModelDrafter
from paceline.draft.model.token_frequency import outputs_for
from paceline.errors import UsageError
from paceline.model.base import PackedModel, packed

NOMINAL = {"q4": 5.0, "q8": 9.0, "bf16": 16.0, "f32": 32.0}  # bits a weight of each, scales included


def make_self(setting: Setting, argument: str) -> Drafter:
    target = packed(setting.target.model)
    if target is None:
        raise UsageError(
            f"self drafts need a model on the native kernels, got `{type(setting.target.model).__name__}`",
            hint="--draft ngram",
        )
    argument = argument or "q4"
    if argument in QUANTS and argument != "auto":
        return _copy(setting, target, argument)
    if not argument.isdecimal() or not 1 <= int(argument) < target.spec.layers:
        raise UsageError(
            f"self:N must have a number of layers from 1 to {target.spec.layers - 1} "
            f"or a type ({', '.join(NOMINAL)}), got `self:{argument}`",
            hint=f"--draft self:{max(1, target.spec.layers // 2)}, or plain --draft self",
        )
    return _drafter(setting, replace(setting.target, model=target.first_layers(int(argument))), argument)


def _copy(setting: Setting, target: PackedModel, quant: str) -> Drafter:
    bits = target.layer_bits()
    if bits <= 1.2 * NOMINAL[quant]:
        raise UsageError(
            f"a copy of the target at `{quant}` must be smaller than the target: "
            f"its layers take `{bits:.1f}` bits a weight already",
            hint="a smaller model or --draft ngram; self:N drafts with the first N layers, which pays only for models "
            "trained to be cut short",
        )
    return _drafter(setting, setting.load(setting.config.model, quant), quant)


def _drafter(setting: Setting, draft: Loaded, argument: str) -> Drafter:
    return ModelDrafter(
        draft.model,
        context=setting.target.context,
        slots=setting.config.slots,
        name=f"self:{argument}",
        outputs=outputs_for(draft, setting.config.draft_head),
        draws=setting.draws,
    )
