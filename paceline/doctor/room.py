"""How much memory target, draft, keys and values take, and whether the machine has it."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.core.aliases import Json
from paceline.doctor.pair import read_draft
from paceline.formats.catalog import resolve
from paceline.formats.companions import bytes_of
from paceline.formats.spec import ModelSpec
from paceline.hardware import memory_bytes, resident_bytes
from paceline.model.base import packed
from paceline.service.llm import LLM

KV_BYTES = 2  # of a number in the cache


def memory(llm: LLM, drafts: Sequence[str]) -> Json:
    """Return bytes: weights, keys and values of one full context, what the process has, and whether the machine has it.

    A draft's weights are those of its file, of which repacking takes less. `fits` is None where the system does not
    say what is free.
    """
    model = llm.engine.parts.model
    weighed = packed(model)
    found = {
        "target_weights": 0 if weighed is None else weighed.weight_bytes,
        "draft_weights": sum(bytes_of(resolve(source)) for source in drafts),
        "target_kv": kv_bytes(model.spec, llm.context),
        "draft_kv": sum(kv_bytes(read_draft(source).model.spec, llm.context) for source in drafts),
    }
    resident, machine = resident_bytes(), memory_bytes()
    needed = max(sum(found.values()), resident + found["target_kv"] + found["draft_kv"])
    room = None if machine is None else min(machine[0], machine[1] + resident)
    return {
        **found,
        "context": llm.context,
        "resident": resident,
        "needed": needed,
        "room": room,
        "fits": None if room is None else needed <= room,
    }


def kv_bytes(spec: ModelSpec, tokens: int) -> int:
    """Return what the keys and values of `tokens` tokens take; a window saves reading, not room."""
    return 2 * spec.layers * spec.kv_heads * spec.head_dim * KV_BYTES * min(tokens, spec.context)


def layer_bits(llm: LLM) -> float | None:
    """Return the bits a weight of the target takes."""
    model = packed(llm.engine.parts.model)
    return None if model is None else model.layer_bits()
