"""The child that reads, and what it survived at the end of the report."""

import pytest


@pytest.fixture(scope="session")
def patient():
    from hostile.fuzzing import Patient

    patient = Patient()
    yield patient
    patient.stop()


def pytest_terminal_summary(terminalreporter):
    try:
        from hostile.fuzzing import SURVIVED
    except ImportError:
        return
    if SURVIVED:
        total = sum(SURVIVED.values())
        kinds = ", ".join(f"{name} {times:,}" for name, times in SURVIVED.items())
        terminalreporter.write_line(f"survived: {total:,} hostile files: {kinds}")
