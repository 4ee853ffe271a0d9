"""B29: a workflow whose process was killed, and which another process recovers."""

from __future__ import annotations

from pathlib import Path

import pytest
from prefect.settings import PREFECT_API_URL

from ..line import WAYS_TO_MAKE_DURABLE, not_on_1
from .crashing import crash_and_recover


@pytest.mark.parametrize('way', WAYS_TO_MAKE_DURABLE)
def test_b29_workflow_recovered_by_dbos_has_a_fresh_copy_and_the_recorded_results(
    way: str, database: str, tmp_path: Path
):
    crash_and_recover('dbos', way, database, tmp_path)


@pytest.mark.parametrize('way', WAYS_TO_MAKE_DURABLE)
@pytest.mark.usefixtures('prefect')
@not_on_1
def test_b29_flow_recovered_by_prefect_has_a_fresh_copy_and_the_recorded_results(way: str, tmp_path: Path):
    crash_and_recover('prefect', way, PREFECT_API_URL.value() or '', tmp_path)
