from __future__ import annotations

import pytest
from pydantic_ai.durable_exec import temporal

from examples import durable

from .processes import Processes

pytestmark = pytest.mark.anyio


@pytest.mark.skipif(not hasattr(temporal, 'TemporalDurability'), reason='carries no state')
async def test_main_kills_a_worker_and_goes_on_with_another(
    capsys: pytest.CaptureFixture[str], processes: Processes
) -> None:
    await durable.main(durable.SCRIPT)

    assert capsys.readouterr().out.splitlines() == [
        f'> {durable.PROMPT}',
        '  The worker adds: book a flight',
        '  The worker calls up the hotel',
        '  The worker is killed, and another one started.',
        '  The worker calls up the hotel',
        '  The worker adds: book a hotel',
        'The plan: 1. book a flight, 2. book a hotel',
    ]
    await processes.are_gone()


@pytest.mark.skipif(hasattr(temporal, 'TemporalDurability'), reason='carries state')
async def test_main_on_a_line_that_carries_no_state_says_so() -> None:
    with pytest.raises(SystemExit, match='carried on 2'):
        await durable.main(durable.SCRIPT)


async def test_state_survives_json() -> None:
    trip = durable.Trip()
    await trip.add('book a flight')
    copy = trip.copy()
    assert copy.plan == []
    await copy.restore_state(await trip.export_state())
    assert await copy.add('book a hotel') == '1. book a flight, 2. book a hotel'
    assert trip.plan == ['book a flight']
