"""Of the live page: on a busy machine too, what an answer shows has been checked when it is given."""

import pytest


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    monkeypatch.setattr("oelm.show.board.watch.PATIENCE", 60.0, raising=False)
