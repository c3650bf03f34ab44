"""A run that tests can stop at any moment: a NumPy classifier on twelve small images, slow enough to be caught."""

import signal
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import heard
from smoothcert import SmoothedClassifier
from smoothcert.certification.planning import count_classes
from smoothcert.data import as_dataset
from smoothcert.options import options_of
from smoothcert.plan import Classifier, Setting
from smoothcert.plan.tally import Ramps, Shares
from smoothcert.sampling.engines import Engines

RNG = np.random.default_rng(0)
IMAGES = RNG.random((12, 1, 4, 4)).astype(np.float32)
WEIGHTS = RNG.normal(size=(16, 3)).astype(np.float32)
PLAN = {"sigma": 0.3, "n0": 50, "n": 1930, "batch": 64, "seed": 0}


class Items:
    """A map-style data set."""

    def __init__(self, images=IMAGES):
        self.images = images

    def __len__(self):
        return len(self.images)

    def __getitem__(self, row):
        return self.images[row], row % 3


def classify(batch, seconds=0.0):
    heard.call(batch)
    time.sleep(seconds)
    return batch.reshape(len(batch), -1) @ WEIGHTS


def slowly(batch):
    return classify(batch, 0.002)


def certify_dataset(model, data, *, out, num_classes=None, **options):
    """A run from all options side by side, the classes counted unless given, as the command makes it. A width is that
    of the draws."""
    engines, dataset = Engines(model), as_dataset(data)
    names = {*options_of(Classifier), *options_of(Setting)} - {"width"}
    smoothing = {name: options.pop(name) for name in names & options.keys()}
    smoothed = SmoothedClassifier(engines, num_classes=num_classes or count_classes(engines, dataset), **smoothing)
    return smoothed.certify_dataset(dataset, out=out, **options)


def certify(out, model=classify, data=None, **changes):
    left_out = {"n": None} if {"radii", "width"} & changes.keys() else {}
    return certify_dataset(model, Items() if data is None else data, out=Path(out), **{**PLAN, **left_out, **changes})


def certify_slowly(out):
    certify(out, slowly)


@contextmanager
def interrupted_after(calls):
    """Ctrl-C when the model has been called that often; one row is the call that counts the classes."""
    left = iter(range(calls))

    def interrupt(batch):
        if len(batch) > 1 and next(left, None) is None:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(heard, "call", interrupt)
        with pytest.raises(KeyboardInterrupt):
            yield


def votes(run):
    return run.tally.selections.tolist(), run.tally.estimations.tolist()


def others(run):
    """What is added up beside the label counts: sums of shares, lost duels and the classes that fought, or margins."""
    beside = run.tally.others
    if isinstance(beside, Ramps):
        top = beside.candidates.tolist()
        return [beside.votes(i, k, beside.rivals(i, k)).tolist() for i, k in enumerate(top)], top, beside.named.tolist()
    if isinstance(beside, Shares):
        return [a.tolist() for s in (beside.selection, beside.estimation) for a in (s.sums, s.squares, s.products)]
    return beside and [beside.lost.tolist(), beside.chosen.tolist(), beside.named.tolist()]


def listen_to_interrupts():
    """For `preexec_fn`: a shell starts background jobs with Ctrl-C ignored, nohup does so with SIGHUP."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
