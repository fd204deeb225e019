"""`--draft auto`: every source that needs no asking for, in one mix.

The user's prediction, the text itself, and a smaller model of the target's family, if one is on this disk already.
The controller decides which of them draft.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from pathlib import Path

from paceline.choices import DRAFTERS
from paceline.draft.base import Drafter, Setting
from paceline.draft.compose.mix import MixDrafter
from paceline.draft.vocab.pairing import aligned, drafter_for, label_of
from paceline.errors import PacelineError
from paceline.formats.catalog import resolve
from paceline.formats.companions import Companion, companions
from paceline.hardware import memory_bytes

LOOKUPS = ("predicted", "suffix")

log = logging.getLogger(__name__)


def make_auto(setting: Setting, argument: str) -> Drafter:
    """Return the mix for a target, without the sources that the user's other drafters bring already."""
    named = {name.partition(":")[0] for name in setting.company}
    members: list[Drafter] = [DRAFTERS[name].make(setting, "") for name in LOOKUPS if name not in named]
    smaller = _companion(setting)
    return MixDrafter(members if smaller is None else [*members, smaller])


def _companion(setting: Setting) -> Drafter | None:
    """Return a smaller model as drafter: the first that loads and has the target's tokens, unless it drafts already."""
    others = [name for name in setting.company if (choice := DRAFTERS.split(name)[0]) is None or choice.draws]
    if setting.target.path is None or (
        others and setting.draws != "shared"
    ):  # a verifier weighs the distributions of one model
        return None
    memory = memory_bytes()
    for found in companions(setting.target.path):
        if any(_is(name, found.path) for name in others):
            continue
        if memory is not None and found.bytes > memory[1]:
            log.info("%s does not draft along: it has %d bytes, and %d are free", found.path, found.bytes, memory[1])
            continue
        try:
            draft = setting.load(str(found.path))
        except PacelineError as error:  # it is an extra: the target goes on without it
            log.info("%s does not draft along: %s", found.path, error)
            continue
        if aligned(setting.target, draft) is not None:
            log.info("%s drafts along: %s", found.path, found.reason)
            return drafter_for(setting, draft)
    return None


def companion_among(path: Path | None, sources: Collection[str]) -> Companion | None:
    """Return the companion at work for the model at `path`, by the names of the sources; `None` if there is none."""
    if path is None:
        return None
    return next((found for found in companions(path) if label_of(str(found.path)) in sources), None)


def _is(name: str, path: Path) -> bool:
    """Whether a drafter is the model of a file, or would go by its name."""
    if DRAFTERS.split(name)[0] is not None:
        return False
    return label_of(name) == label_of(str(path)) or resolve(name).samefile(path)
