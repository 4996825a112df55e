from __future__ import annotations

import copy
import pickle

import pytest

from internalize.engine.faults import EngineTimeoutError
from internalize.errors import GateFailed, UserError
from internalize.gateway.chain import ChainBroken
from internalize.gateway.conversation import RequestError
from internalize.gateway.session import Refused

ERRORS = [
    UserError("what", where="where", expected="expected", got="got", fix="fix"),
    GateFailed("what", got="got"),
    EngineTimeoutError("what", where="GET /"),
    ChainBroken("context", "what", got="got", expected="expected"),
    RequestError("what", 413),
    Refused("closed", "what"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_comes_whole_through_pickle_whatever_its_constructor_takes(error: UserError) -> None:
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert (again.args, vars(again)) == (error.args, vars(error))
