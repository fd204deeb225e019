"""Measure this machine anew for a configuration, and describe the calibration that is kept."""

from __future__ import annotations

from paceline.config import LLMConfig, parse_draft
from paceline.core.aliases import Json
from paceline.engine.calibrate import Calibration, Instruments, calibrated, known
from paceline.engine.keyed_store import path_of
from paceline.engine.loading import calibration_key, find_models, load_drafter, load_target
from paceline.kernels.native import new_pool


def recalibrate(config: LLMConfig, *, progress: bool = False) -> Json:
    """Measure, keep and return a calibration, in place of any other; what `paceline calibrate --json` prints.

    Where nothing drafts, nothing is loaded or measured.

    Raises:
        PacelineError: a model cannot be found or loaded.
    """
    pool = new_pool(config.threads)
    find_models(config, progress=progress)
    said: Json = {"model": config.model, "draft": config.draft, "threads": int(pool.threads)}
    if parse_draft(config.draft) == ["off"]:
        return {**said, "drafters": [], **described(None), "path": None}
    tools = Instruments()
    target = load_target(config, pool, progress=progress)
    drafter = load_drafter(config, target, pool, progress=progress)
    key = calibration_key(config, target, drafter, pool)
    found = calibrated(target.model, drafter, key, again=True, progress=progress, instruments=tools)
    kept = known(key)
    path = path_of(key) if kept is not None and kept.quality == found.quality else None
    return {**said, "drafters": list(drafter.sources), **described(found), "path": None if path is None else str(path)}


def described(found: Calibration | None) -> Json:
    """Return a calibration as plain data, with v(M) and whether it is doubtful; all empty for none."""
    if found is None:
        return {"forward_seconds": {}, "v": {}, "step_seconds": {}, "quality": None, "is_doubtful": None}
    said = found.to_json()
    plain = float(found.cost.base[0])  # of one row, which every table has
    v = {rows: took / plain for rows, took in said["forward_seconds"].items()}
    return {**said, "v": v, "is_doubtful": found.quality.is_doubtful}
