"""smoothcert: proved l2 robustness radii for any classifier, by randomized smoothing."""

from smoothcert import bounds, lipschitz, models, radii
from smoothcert.bounds.prediction import ABSTAIN
from smoothcert.certificate import Certificate, certify_counts, certify_counts_batch
from smoothcert.certification import certify_dataset
from smoothcert.classifier import SmoothedClassifier
from smoothcert.errors import InputError, RunError
from smoothcert.store import Run, open_run

__all__ = [
    "ABSTAIN",
    "Certificate",
    "InputError",
    "Run",
    "RunError",
    "SmoothedClassifier",
    "bounds",
    "certify_counts",
    "certify_counts_batch",
    "certify_dataset",
    "lipschitz",
    "models",
    "open_run",
    "radii",
]
