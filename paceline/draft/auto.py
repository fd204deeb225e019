"""`--draft auto`: everybody who can help without being asked for, in one mix.

The user's prediction, the text itself, what the target thought likely before; and the smaller model that goes with a
known one, if it is on this disk already. Which of them are listened to is the controller's business.
"""

from __future__ import annotations

from paceline.draft.base import Drafter, Setting, register
from paceline.draft.mix import MixDrafter
from paceline.draft.predicted import PredictedDrafter
from paceline.draft.recycle import RecycleDrafter
from paceline.draft.suffix import SuffixDrafter
from paceline.draft.translate import drafter_for
from paceline.model.sources import companion


def make_auto(setting: Setting, argument: str) -> Drafter:
    """Return the mix for a target."""
    members: list[Drafter] = [
        PredictedDrafter.of(setting, ""),
        SuffixDrafter.of(setting, ""),
        RecycleDrafter.of(setting, ""),
    ]
    smaller = companion(setting.target.name)
    if smaller is not None:
        members.append(drafter_for(setting, setting.load(smaller)))
    return MixDrafter(members)


register("auto", make_auto)
