"""Plans of all kinds, for hypothesis."""

import dataclasses

from hypothesis import strategies as st

from smoothcert import Duels, FixedN, Labels, Margins, Question, Softmax, Sparsemax, UntilRadii, UntilWidth
from smoothcert.plan import Classifier, Hardmax, Plan, Selection, Setting
from smoothcert.sampling.identity import Identity

numbers = st.floats(1e-9, 1e9)
counts = st.integers(1, 10**9)
words = st.text(max_size=20)
adaptive = {"max_n": st.integers(1, 10**4).map(lambda k: 100 * k), "futility": st.floats(0, 0.499)}
radii = st.sets(numbers, min_size=1, max_size=5).map(lambda found: tuple(sorted(found)))
draws = st.one_of(
    st.builds(FixedN, n=counts, method=st.none() | words),
    st.builds(UntilRadii, radii=radii, **adaptive),
    st.builds(UntilWidth, width=st.floats(0.001, 0.999), **adaptive),
)
votes = st.sampled_from([Duels(), Labels()]) | st.sampled_from([Margins, Softmax, Sparsemax, Hardmax]).flatmap(
    lambda k: st.builds(k, numbers)
)
noise = st.just({"noise": "gaussian"}) | st.fixed_dictionaries({"noise": st.just("grid"), "levels": counts})
classifiers = st.builds(
    lambda noise, **others: Classifier(**noise, **others),
    noise=noise,
    sigma=numbers,
    num_classes=st.integers(2, 10**6),
    votes=votes,
    model=words,
)
questions = st.builds(
    Question,
    n0=counts,
    draws=draws,
    alpha=st.floats(1e-6, 0.999),
    lipschitz=st.none() | numbers | st.sampled_from(["product", "local"]),
)
identities = st.builds(Identity, words, words, words, words)
settings = st.builds(Setting, engine=words | identities, batch=st.just("auto") | counts, seed=st.integers())
shards = st.tuples(st.integers(1, 50), st.integers(0, 50)).map(lambda ik: (ik[0], ik[0] + ik[1]))
selections = st.builds(
    Selection,
    skip=counts,
    limit=st.none() | counts,
    shard=st.none() | shards,
    data=words,
    preprocessing=words,
    total=st.integers(0, 10**9),
)


def may_be_asked(plan):
    """Draws do not end by a width where votes have one."""
    return not (isinstance(plan.classifier.votes, Margins) and isinstance(plan.question.draws, UntilWidth))


def with_constant(plan, constant):
    """A constant is there where one is proved, or given, and then it is that one."""
    proved, given = plan.question.lipschitz == "product", plan.question.source == "given"
    return dataclasses.replace(plan, constant=constant if proved else plan.question.lipschitz if given else None)


plans = st.builds(
    with_constant,
    st.builds(
        Plan,
        classifier=classifiers,
        question=questions,
        setting=settings,
        selection=selections,
        noise_error=st.floats(0, 1e-7),
    ).filter(may_be_asked),
    constant=numbers,
)
