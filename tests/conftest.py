"""Fixtures that several rooms share, and what the suite survived at the end of its report."""

import gc
from pathlib import Path

import hypothesis
import pytest

from survived import SURVIVED

hypothesis.settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any machine")


@pytest.fixture(scope="session")
def uninterrupted(tmp_path_factory):
    """The votes of the interruptible run, never stopped."""
    from interruptible import certify, votes

    return votes(certify(tmp_path_factory.mktemp("whole") / "run.smoothcert"))


@pytest.fixture(scope="session")
def shared_data():
    """The folder with CIFAR-10 and the published logs, where it stands beside the repository."""
    folder = Path(__file__).parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("CIFAR-10 and the published logs are not beside the repository")
    return folder


def pytest_collection_finish():
    """What was imported stays: looking through it again and again for garbage took a fifth of the time."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def pytest_itemcollected(item):
    """Tests that share what their module makes once stay in one process, so that it is made once."""
    fixtures = [fixture for found in item._fixtureinfo.name2fixturedefs.values() for fixture in found]
    if any(f.scope == "module" for f in fixtures) and not item.get_closest_marker("xdist_group"):
        item.add_marker(pytest.mark.xdist_group(item.module.__name__))


def pytest_sessionfinish(session):
    if hasattr(session.config, "workeroutput"):  # one of several processes
        session.config.workeroutput["survived"] = dict(SURVIVED)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    SURVIVED.update(getattr(node, "workeroutput", {}).get("survived", {}))


def pytest_terminal_summary(terminalreporter):
    if SURVIVED:
        counts = ", ".join(f"{name} {times:,}" for name, times in sorted(SURVIVED.items()))
        terminalreporter.write_line(f"survived: {counts}")
