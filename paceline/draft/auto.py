"""`--draft auto`: every source that needs no asking for, in one mix.

The user's prediction, the text itself, what the target thought likely before; and the smaller model that goes with a
known one, if it is on this disk already. Which of them are listened to is the controller's business.
"""

from __future__ import annotations

from paceline.choices import DRAFTERS
from paceline.draft.base import Drafter, Setting
from paceline.draft.mix import MixDrafter
from paceline.draft.translate import drafter_for
from paceline.errors import PacelineError
from paceline.model.sources import companion, resolve

LOOKUPS = ("predicted", "suffix", "recycle")


def make_auto(setting: Setting, argument: str) -> Drafter:
    """Return the mix for a target, less what the setting's company has: named, it is there already."""
    named = {name.partition(":")[0] for name in setting.company}
    members: list[Drafter] = [DRAFTERS[name].make(setting, "") for name in LOOKUPS if name not in named]
    smaller = companion(setting.target.name)
    if smaller is not None and not _is_beside(smaller, setting):
        members.append(drafter_for(setting, setting.load(smaller)))
    return MixDrafter(members)


def _is_beside(source: str, setting: Setting) -> bool:
    """Whether a model drafts already, or another does whose law the verifier weighs: it weighs one."""
    others = [name for name in setting.company if (choice := DRAFTERS.split(name)[0]) is None or choice.draws]
    models = [name for name in others if DRAFTERS.split(name)[0] is None]
    return bool(others and setting.draws != "shared") or any(_same(name, source) for name in models)


def _same(name: str, source: str) -> bool:
    try:
        return resolve(name).samefile(resolve(source))
    except (PacelineError, OSError):
        return False
