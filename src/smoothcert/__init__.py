"""smoothcert: proved l2 robustness radii for any classifier, by randomized smoothing.

Names are imported when they are first used: what needs no torch does not wait for it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from smoothcert import bounds as bounds
    from smoothcert import lipschitz as lipschitz
    from smoothcert import models as models
    from smoothcert import radii as radii
    from smoothcert.bounds.prediction import ABSTAIN as ABSTAIN
    from smoothcert.certificate import Certificate as Certificate
    from smoothcert.certificate import certify_counts as certify_counts
    from smoothcert.certificate import certify_counts_batch as certify_counts_batch
    from smoothcert.certificate import certify_duels as certify_duels
    from smoothcert.classifier import SmoothedClassifier as SmoothedClassifier
    from smoothcert.errors import InputError as InputError
    from smoothcert.errors import RunError as RunError
    from smoothcert.lipschitz_classifier import LipschitzClassifier as LipschitzClassifier
    from smoothcert.plan import Cluster as Cluster
    from smoothcert.plan import Duels as Duels
    from smoothcert.plan import FixedN as FixedN
    from smoothcert.plan import Labels as Labels
    from smoothcert.plan import Margins as Margins
    from smoothcert.plan import Question as Question
    from smoothcert.plan import Softmax as Softmax
    from smoothcert.plan import Sparsemax as Sparsemax
    from smoothcert.plan import UntilRadii as UntilRadii
    from smoothcert.plan import UntilWidth as UntilWidth
    from smoothcert.store import Run as Run
    from smoothcert.store import open_run as open_run

_ROOMS = ("bounds", "lipschitz", "models", "radii")
_HOMES = {
    "ABSTAIN": "bounds.prediction",
    "Certificate": "certificate",
    "Cluster": "plan",
    "Duels": "plan",
    "FixedN": "plan",
    "InputError": "errors",
    "Labels": "plan",
    "LipschitzClassifier": "lipschitz_classifier",
    "Margins": "plan",
    "Question": "plan",
    "Run": "store",
    "RunError": "errors",
    "SmoothedClassifier": "classifier",
    "Softmax": "plan",
    "Sparsemax": "plan",
    "UntilRadii": "plan",
    "UntilWidth": "plan",
    "certify_counts": "certificate",
    "certify_counts_batch": "certificate",
    "certify_duels": "certificate",
    "open_run": "store",
}
__all__ = [*_HOMES, *_ROOMS]


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f"smoothcert.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'smoothcert' has no attribute {name!r}")
    value = getattr(import_module(f"smoothcert.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
