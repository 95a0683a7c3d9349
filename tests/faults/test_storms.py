"""Any fault, at any time, one after another: what a seed draws. `FACETLINE_FAULT_SEED=7` draws others."""

import pytest
import seeds
from rig import Rig
from storms import Storm

STEPS = 4
STEPS_SOAK = 12


@pytest.mark.timeout(300)
async def test_all_promises_hold_after_random_faults(any_rig: Rig):
    """Whatever is killed, frozen, cut or away in whatever order: every promise holds when it is over."""
    source = seeds.chance("storm", any_rig.site.name)
    python = seeds.given() is not None and source.random() < 0.5
    settings = {"NO_CYTHON": "1"} if python else {}
    any_rig.running(*any_rig.workers)
    async with any_rig.trial() as trial:
        storm = Storm(any_rig, trial, source, **settings)
        storm.start()
        await storm.run(STEPS if seeds.given() is None else STEPS_SOAK)
    any_rig.running("one", "two")
