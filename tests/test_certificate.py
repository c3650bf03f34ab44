"""Votes to certificates: published radii, and what is refused."""

import re
from pathlib import Path

import numpy as np
import pytest
from scipy import special, stats

from smoothcert import ABSTAIN, InputError, certify_counts, certify_counts_batch
from smoothcert.bounds import METHODS
from smoothcert.bounds.binomial import lower_quantile
from smoothcert.certificate import certificates
from smoothcert.plan import Classifier, FixedN, Question, Slopes, Softmax, Tally
from smoothcert.sampling.blocks import UNIT, Phase, Soft, Votes
from smoothcert.text import radius_text

LOGS = Path(__file__).parents[2] / "shared" / "data" / "cohen2019"


@pytest.mark.parametrize("method", METHODS)
def test_a_lost_vote_abstains(method):
    certificate = certify_counts([60, 40], [400, 600], sigma=0.5, method=method)
    assert (certificate.prediction, certificate.radius) == (ABSTAIN, 0.0)
    assert certificate.abstained
    assert not certificate.certified_at(0)


@pytest.mark.parametrize("method", METHODS)
def test_radius_scales_with_sigma_and_grows_with_alpha(method):
    one = certify_counts([90, 10, 0], [900, 80, 20], sigma=1.0, method=method)
    half = certify_counts([90, 10, 0], [900, 80, 20], sigma=0.5, method=method)
    bold = certify_counts([90, 10, 0], [900, 80, 20], sigma=1.0, alpha=0.05, method=method)
    np.testing.assert_allclose(half.radius, one.radius / 2, rtol=1e-14)
    assert bold.radius > one.radius > 0
    assert one.certified_at(one.radius)
    assert not one.certified_at(np.nextafter(one.radius, 9))


def test_mono_is_the_interval_of_cohen():
    """The lower end of the two-sided Clopper-Pearson interval at 2α, as statsmodels computes it for his script."""
    certificate = certify_counts([99, 1], [99_000, 1_000], sigma=0.25, alpha=0.001, method="mono")
    lower = stats.beta.ppf(0.001, 99_000, 1_001)
    np.testing.assert_allclose(certificate.radius, 0.25 * stats.norm.ppf(lower), rtol=1e-11)


def test_batch_is_row_by_row():
    rng = np.random.default_rng(0)
    selections, estimations = (
        rng.multinomial(100, [0.6, 0.3, 0.1], 20),
        rng.multinomial(1000, [0.6, 0.3, 0.1], 20),
    )
    for method in METHODS:
        batch = certify_counts_batch(selections, estimations, sigma=0.5, method=method)
        singles = [certify_counts(s, e, sigma=0.5, method=method) for s, e in zip(selections, estimations, strict=True)]
        assert batch == singles


def soft_tally(shares):
    """A tally of soft votes of one input: its selection sample (draws, c), then its estimation sample."""
    top = int(shares[0].sum(axis=0).argmax())
    c = shares[0].shape[1]
    tally = Tally.zeros(1, c, Softmax().others(1, c))
    for sample, (k, candidate) in enumerate(zip(shares, (-1, top), strict=True)):
        k = np.rint(k * UNIT).astype(np.int64)
        classes, counts = np.unique(k.argmax(axis=1), return_counts=True)
        tally.add(Votes(0, Phase.COUNT, 0, 1, len(k), classes, counts, 0.0, Soft.of(k, candidate)), 0, sample)
    return tally


def test_a_certificate_carries_its_constant_and_its_basis():
    rng = np.random.default_rng(6)
    tally = soft_tally([special.softmax(rng.normal([3.0, 0.0], size=(n, 2)), axis=1) for n in (100, 1000)])
    classifier = Classifier(sigma=0.5, num_classes=2, votes=Softmax(0.5))
    question = Question(draws=FixedN(1000)).about(classifier)
    plain, lipschitz = (
        certificates(classifier, question, tally, slopes=slopes)[0] for slopes in (None, Slopes(np.array([3.0])))
    )
    assert (plain.votes, plain.basis, plain.lipschitz, plain.n0, plain.n) == ("softmax", "proved", None, 100, 1000)
    assert lipschitz.lipschitz == pytest.approx(3 * 2**0.5 / 4 / 0.5)  # of the scores, of softmax, and 1/T
    assert lipschitz.radius > plain.radius > 0
    (estimated,) = certificates(classifier, question, tally, slopes=Slopes(np.array([3.0])), basis="estimated")
    assert (estimated.basis, estimated.radius) == ("estimated", lipschitz.radius)


def test_a_certificate_as_a_row_is_what_it_says():
    certificate = certify_counts([60, 40, 0], [700, 200, 100], sigma=0.5, alpha=0.01, method="cpm")
    row = certificate.as_row()
    facts = {"sigma": 0.5, "alpha": 0.01, "method": "cpm", "noise": "gaussian", "votes": "labels", "basis": "proved"}
    assert row.items() >= {**facts, "prediction": 0, "n0": 100, "n": 1000, "noise_error": 0.0}.items()
    assert (row["radius"], row["num_buckets"]) == (certificate.radius, certificate.num_buckets)
    assert (certificate.question.n0, certificate.question.draws) == (100, FixedN(1000, "cpm"))


@pytest.mark.skipif(not LOGS.is_dir(), reason="the published logs are not beside the repository")
@pytest.mark.parametrize("log", sorted(LOGS.glob("*.tsv")) or [None], ids=lambda p: p.stem if p else "none")
def test_every_published_radius_is_one_of_ours(log):
    """Each printed radius is σ Φ⁻¹(Clopper-Pearson) of some vote count out of 100 000, to three digits."""
    training, smoothing = (float(log.stem.split(key)[1].split("__")[0]) for key in ("noise_", "sigma_"))
    alpha = 0.01 if training == smoothing and smoothing >= 0.25 else 0.001
    ours = smoothing * lower_quantile(np.arange(50_000, 100_001), 100_000, alpha)
    printed = np.char.mod("%.3g", ours[ours > 0])
    known = set(np.unique(printed.astype(float)))
    rows = [line.split("\t") for line in log.read_text().splitlines()[1:]]
    radii = [float(radius) for _, _, predict, radius, *_ in rows if predict != "-1"]
    assert len(radii) > 300
    assert set(radii) <= known


@pytest.mark.parametrize(
    ("selection", "estimation", "options", "message"),
    [
        ([9, 1], [90, 10], {"method": "best"}, "unknown method 'best'"),
        ([9, 1], [90, 10], {"alpha": 0.0}, "alpha must lie strictly between 0 and 1"),
        ([9, 1], [90, 10], {"alpha": 1.5}, "alpha must lie strictly between 0 and 1"),
        *(
            ([9, 1], [90, 10], {"alpha": value}, "alpha must be one number")
            for value in ("0.1", [0.1], [[1], [1, 2]], None)
        ),
        ([9, 1], [90, 10], {"sigma": 0.0}, "sigma must be a positive number"),
        ([9, 1], [90, 10], {"sigma": float("nan")}, "sigma must be a positive number"),
        ([9, 1], [90, 10], {"sigma": -1}, "sigma must be a positive number"),
        ([9.0, 1.0], [90, 10], {}, "selection counts must be integers"),
        ([9, 1], [90.5, 9.5], {}, "estimation counts must be integers"),
        ([9, -1], [90, 10], {}, "must not be negative"),
        ([0, 0], [90, 10], {}, "selection counts of an input are all zero"),
        ([9, 1], [0, 0], {}, "estimation counts of an input are all zero"),
        ([9, 1], [90, 5, 5], {}, "same shape"),
        ([9], [90], {}, "at least two"),
        (9, 90, {}, "one number per class"),
    ],
)
def test_bad_counts_are_refused_in_one_sentence(selection, estimation, options, message):
    with pytest.raises(InputError, match=message) as refusal:
        certify_counts(selection, estimation, **{"sigma": 0.5, **options})
    assert "\n" not in str(refusal.value)


def test_a_radius_is_shown_rounded_down():
    for radius in (0.29999, 1.0, 1.23456, 9.9999e-5, 123.99, 0.0, *np.random.default_rng(0).exponential(size=100)):
        for digits in (3, 4):
            shown = float(radius_text(radius, digits))
            assert radius - 10.0 ** (1 - digits) * radius <= shown <= radius
    certificate = certify_counts([10, 0], [1000, 0], sigma=0.5)
    shown = re.search(r"shorter than <b>([0-9.]+)</b>", certificate._repr_html_())
    assert certificate.radius - 1e-3 < float(shown[1]) <= certificate.radius
