from __future__ import annotations

import hashlib

import pytest

from examples import pure_functions
from examples.support import call, script

pytestmark = pytest.mark.anyio


async def test_main_prints_the_digest_in_each_run(capsys: pytest.CaptureFixture[str]) -> None:
    await pure_functions.main(pure_functions.SCRIPT)

    assert capsys.readouterr().out.splitlines() == [hashlib.sha256(b'pydantic').hexdigest()] * 2


async def test_runs_share_the_toolset_and_copy_nothing() -> None:
    model = script([call('sha256', text='a'), call('md5', text='a')])
    result = await pure_functions.agent.run('go', model=model)

    assert result.output == ', '.join(hash_of(b'a').hexdigest() for hash_of in (hashlib.sha256, hashlib.md5))
    assert pure_functions.hashes.copy() is pure_functions.hashes
