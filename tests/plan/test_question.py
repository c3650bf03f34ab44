"""What is asked: the kind of draws follows from what is given, and what says nothing is refused."""

import inspect

import numpy as np
import pytest

from interruptible import Items
from smoothcert import FixedN, InputError, Labels, Question, SmoothedClassifier, Softmax, UntilRadii, UntilWidth
from smoothcert.plan import Classifier, Hardmax

DUELS = Classifier(sigma=0.5, num_classes=3)
LABELS = Classifier(sigma=0.5, num_classes=3, votes=Labels())
SOFT = Classifier(sigma=0.5, num_classes=3, votes=Softmax())


@pytest.mark.parametrize(
    ("given", "draws"),
    [
        ({}, FixedN()),
        ({"n": 500}, FixedN(n=500)),
        ({"method": "mono"}, FixedN(method="mono")),
        ({"radii": [0.25, 0.5]}, UntilRadii(radii=(0.25, 0.5))),
        ({"radii": np.array([0.25]), "max_n": 500}, UntilRadii(radii=(0.25,), max_n=500)),
        ({"width": 0.1, "futility": 0}, UntilWidth(width=0.1, futility=0.0)),
        ({"width": 0.1, "radii": None, "n": None}, UntilWidth(width=0.1)),
        ({"draws": UntilWidth(width=0.1)}, UntilWidth(width=0.1)),
    ],
)
def test_what_is_given_says_how_long_to_draw(given, draws):
    assert Question.of(**given).draws == draws


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"radii": [0.1], "width": 0.1}, "ask either for `radii` or for `width`, not both."),
        ({"radii": [0.1], "n": 500}, "`n` says nothing with `radii`: leave it out."),
        ({"width": 0.1, "method": "mono"}, "`method` says nothing with `width`: leave it out."),
        ({"max_n": 500}, "`max_n` says nothing without `radii` or `width`: leave it out."),
        ({"n": 500, "futility": 0.1}, "`futility` says nothing without `radii` or `width`: leave it out."),
        ({"draws": FixedN(5), "n": 7}, "`n` is part of `draws`, which is given whole: leave one of them out."),
        ({"draws": FixedN(5), "radii": [1.0]}, "`radii` is part of `draws`, which is given whole: leave one of"),
        ({"draws": 500}, "draws must be FixedN(), UntilRadii() or UntilWidth(), got 500."),
        ({"depth": 3}, "there is no option `depth`: choose from n0, n, method,"),
    ],
)
def test_what_says_nothing_is_refused(given, sentence):
    with pytest.raises(InputError) as refusal:
        Question.of(**given)
    assert str(refusal.value).startswith(sentence)


def test_a_whole_question_is_not_changed_by_keywords():
    smoothed = SmoothedClassifier(lambda b: b, sigma=0.5, num_classes=2)
    for call in (smoothed.certify, smoothed.certify_batch):
        with pytest.raises(InputError, match="`alpha` is part of a question, and a whole one is given"):
            call([np.zeros(2)], Question(), alpha=0.01)
    with pytest.raises(InputError, match="`n` is part of a question, and a whole one is given"):
        smoothed.certify_dataset(Items(), Question(), out="nothing", n=7)
    assert smoothed.certify(np.zeros(2), Question.of(n=100), alpha=None).n == 100


def test_a_question_and_its_keywords_are_answered_alike():
    smoothed = SmoothedClassifier(lambda b: b, sigma=0.5, num_classes=2, votes=Labels(), batch=100)
    x = np.float32([0.5, 0.0])
    asked = {"n0": 50, "n": 400, "alpha": 0.01, "method": "mono"}
    certificate = smoothed.certify(x, Question(n0=50, draws=FixedN(400, "mono"), alpha=0.01))
    assert certificate == smoothed.certify(x, **asked)
    assert (certificate.n0, certificate.n, certificate.alpha, certificate.method) == (50, 400, 0.01, "mono")


class TestSignatures:
    @staticmethod
    def defaults():
        choice = {"n": 10_000, "method": None, "radii": None, "width": None, "max_n": 100_000, "futility": 0.05}
        return {"n0": 100, "alpha": 0.001, "lipschitz": None, **choice}

    @pytest.mark.parametrize("name", ["certify", "certify_batch", "certify_dataset"])
    def test_every_option_of_a_question_is_shown_with_its_default_and_told(self, name):
        method = getattr(SmoothedClassifier, name)
        shown = {p.name: p.default for p in inspect.signature(method).parameters.values() if p.kind is p.KEYWORD_ONLY}
        assert shown.items() >= self.defaults().items()
        if name != "certify_dataset":
            assert shown.keys() == self.defaults().keys()
        lines = method.__doc__.partition("Keyword Args:")[2].strip().splitlines()
        told = dict(line.strip().split(": ", 1) for line in lines)
        assert told.keys() >= self.defaults().keys()
        assert all(len(sentence.split()) >= 3 for sentence in told.values())

    def test_a_run_takes_the_options_of_its_inputs_too(self):
        shown = inspect.signature(SmoothedClassifier.certify_dataset).parameters
        assert [shown[name].default for name in ("skip", "limit", "shard", "images")] == [1, None, None, True]
        assert shown["out"].default is inspect.Parameter.empty

    def test_a_classifier_shows_what_it_needs_and_what_it_may_be_told(self):
        shown = inspect.signature(SmoothedClassifier).parameters
        assert {n for n, p in shown.items() if p.default is p.empty} == {"model", "sigma", "num_classes"}
        assert (shown["noise"].default, shown["seed"].default, shown["batch"].default) == ("gaussian", None, "auto")
        told = SmoothedClassifier.__init__.__doc__
        assert all(f"{name}: " in told for name in shown if name != "model")

    def test_what_is_not_shown_is_not_taken(self):
        for name in ("cluster", "alpha", "depth", "rows"):
            with pytest.raises(InputError, match=f"there is no option `{name}`"):
                SmoothedClassifier(lambda b: b, sigma=0.5, num_classes=2, **{name: 1})
        with pytest.raises(InputError, match="`sigma` is missing: pass it"):
            SmoothedClassifier(lambda b: b, num_classes=2)


class TestAbout:
    """A question is settled by the classifier that it is asked of."""

    @pytest.mark.parametrize(("classifier", "method"), [(DUELS, "duels"), (LABELS, "pairwise"), (SOFT, "betting")])
    def test_the_votes_have_their_usual_method(self, classifier, method):
        assert Question().about(classifier).method == method

    def test_a_method_that_was_named_stays(self):
        assert Question.of(method="cpm").about(LABELS).method == "cpm"
        assert Question.of(radii=[0.1]).about(LABELS) == Question.of(radii=[0.1])

    @pytest.mark.parametrize(
        ("classifier", "given", "sentence"),
        [
            (LABELS, {"method": "betting"}, "unknown method 'betting' for labels: choose one of mono, bonferroni, cpm"),
            (SOFT, {"method": "mono"}, "mono is a method for labels, and the votes are softmax: use `votes` labels"),
            (DUELS, {"method": "pairwise"}, "pairwise is a method for labels, and the votes are duels"),
            (DUELS, {"method": "betting"}, "unknown method 'betting' for duels: choose one of duels"),
            (DUELS, {"lipschitz": 1.0}, "duels votes jump"),
            (LABELS, {"method": 7}, "unknown method 7 for labels"),
            (LABELS, {"lipschitz": 1.0}, "labels votes jump, so no Lipschitz constant says anything about them"),
            (SOFT, {"radii": [0.1]}, "soft votes need a fixed number of draws"),
            (SOFT, {"n": 1}, "soft votes need from 2 to"),
            (SOFT, {"n": 10**8}, "soft votes need from 2 to"),
            (SOFT, {"n0": 10**8}, "soft votes need from 2 to"),
            (Classifier(0.5, 3, "grid", votes=Softmax()), {"lipschitz": 1.0}, "which is not Lipschitz"),
            (Classifier(0.5, 3, votes=Hardmax()), {"lipschitz": "product"}, "hardmax votes jump"),
        ],
    )
    def test_what_does_not_go_together_is_refused(self, classifier, given, sentence):
        question = Question.of(**given)
        with pytest.raises(InputError, match=sentence):
            question.about(classifier)


class TestAgain:
    """Votes answer further questions, but not every one."""

    def test_another_method_and_another_level_of_a_fixed_number_of_draws(self):
        asked = Question.of(n=500).about(LABELS)
        classifier, again = asked.again(LABELS, "mono", 0.05)
        assert (classifier, again.method, again.alpha, again.draws.n) == (LABELS, "mono", 0.05, 500)
        assert asked.again(LABELS, None, None) == (LABELS, asked)

    def test_methods_for_labels_are_about_the_classifier_of_the_labels(self):
        """A Lipschitz constant of the shares says nothing about it."""
        classifier, again = Question().about(DUELS).again(DUELS, "pairwise", 0.01)
        assert (classifier.votes, again.method, again.alpha) == (Labels(), "pairwise", 0.01)
        classifier, again = Question.of(lipschitz=1.0).about(SOFT).again(SOFT, "cpm", None)
        assert (classifier.votes, again.method, again.lipschitz) == (Labels(), "cpm", None)

    @pytest.mark.parametrize("given", [{"radii": [0.1]}, {"width": 0.1}])
    def test_votes_that_ended_the_draws_answer_nothing_else(self, given):
        asked = Question.of(**given)
        for classifier in (DUELS, LABELS):
            assert asked.again(classifier, asked.method, asked.alpha) == (classifier, asked)
            for method, alpha in (("mono", None), (None, 0.01)):
                with pytest.raises(InputError, match="stopped drawing when its votes said so"):
                    asked.again(classifier, method, alpha)


@pytest.mark.parametrize(
    ("given", "source"), [(None, None), (2.5, "given"), (3, "given"), ("product", "product"), ("local", "local")]
)
def test_where_a_constant_comes_from(given, source):
    assert Question(lipschitz=given).source == source
