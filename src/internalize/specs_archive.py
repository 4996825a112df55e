"""The spec of the archive: the study as resolved, and how it is packed.

Invariant: as `specs`; what a run's pack depends on is cut out of it (`archive.runs.pack_spec`), so that a new title
packs nothing.
"""

from __future__ import annotations

from internalize.specs import Spec, report
from internalize.study import Study, resolved_arm
from internalize.study_arms import Arm


def archive(study: Study, arms: list[Arm]) -> Spec:
    """Archive settings, every arm as told and as set, the rest of the study."""
    told = report(study, arms)
    settings = {arm.name: {key: value for key, value in arm.plain().items() if key != "note"} for arm in arms}
    prepared = [resolved_arm(study, name) for name, entry in study.arms.items() if entry.status == "prepared"]
    waiting = [arm for arm in prepared if arm.status == "prepared"]
    return {
        "name": study.name,
        "archive": study.archive.plain(),
        "arms": {name: {**arm, "settings": settings[name]} for name, arm in told["arms"].items()},
        "order": told["order"],
        "prepared": report(study, waiting)["arms"] if waiting else {},
        "study": {key: value for key, value in study.plain().items() if key not in ("arms", "archive", "defaults")},
    }
