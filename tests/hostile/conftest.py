"""The child that reads."""

import pytest


@pytest.fixture(scope="session")
def patient():
    from hostile.fuzzing import Patient

    patient = Patient()
    yield patient
    patient.stop()
