"""Which known models could draft for a target: smaller ones with its vocabulary."""

from __future__ import annotations

from dataclasses import replace

from paceline.core.aliases import Json
from paceline.formats.catalog import COMPANIONS, is_here
from paceline.formats.spec import ModelSpec
from paceline.plan.performance import Costs, break_even
from paceline.plan.shapes import ALIASES, SHAPES, Shape, drafts_for

MOST_PADDING = 1024  # rows of a model's output that no token has, and that a loaded model does without
DRAFT_BITS = 4.3  # a weight of a draft model takes, as --draft-quant q4s packs it


def shape_like(spec: ModelSpec) -> Shape | None:
    """Return the known model that has these numbers; a fine-tuned one has those of its base."""
    ours = (spec.layers, spec.width, spec.ffn_width, spec.kv_heads)
    for shape in SHAPES.values():
        theirs = (shape.layers, shape.width, shape.ffn_width, shape.heads[1])
        if theirs == ours and 0 <= shape.vocab - spec.vocab <= MOST_PADDING:
            return shape
    return None


def proposals(name: str, spec: ModelSpec, bits: float | None, costs: Costs) -> list[Json]:
    """Return drafts for a target, the smallest first: what a step should cost, and from which acceptance on it pays.

    The cost is that of reading the weights, in plain tokens; a real step takes somewhat more.
    """
    target, pinned = shape_like(spec), COMPANIONS.get(name)
    found = []
    for draft in drafts_for(target) if target and bits else []:
        own = pinned if pinned and ALIASES.get(pinned) == draft else draft
        assert target is not None
        assert bits is not None
        cost = SHAPES[draft].read_parameters * DRAFT_BITS / (target.read_parameters * bits)
        least = break_even(replace(costs, draft_step=cost))
        found.append({"name": own, "fetch": own == pinned and not is_here(own), "cost": cost, "break_even": least})
    return found
