"""Fixtures that several rooms share."""

from pathlib import Path

import pytest


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
