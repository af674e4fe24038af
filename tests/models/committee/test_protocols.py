"""How the committee is trained: batches, losses, labels, optimisers, and the two back ends of them."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from committees import SIGNS, classifier, problem

from solvable import SGD, GradientDescent, GradientFlow, activations, compare, solvers, teachers
from solvable.models.committee.batches import Batches
from solvable.models.committee.closure import LatentClosure
from solvable.models.committee.columns import Columns, Private
from solvable.models.committee.losses import Labelling, Loss
from solvable.models.committee.population import measure_test
from solvable.models.committee.problem import problem_of
from solvable.models.committee.protocol import Descent
from solvable.models.committee.simulation import FORMS

FEW = solvers.Latent(samples=512, replicates=2)
SAMPLINGS = ("subsets", "replacement", "epochs", "cyclic")


def closure_of(model, training, samples=1024, shrunk=False):
    task = problem_of(model, training)
    return LatentClosure(task, samples=samples, tolerance=1e-3, shrunk=shrunk, key=(0, 0), memory_limit=2**31)


class TestBatches:
    @pytest.mark.parametrize("sampling", SAMPLINGS)
    @pytest.mark.parametrize("literal", [False, True])
    def test_every_way_of_sampling_has_its_moments(self, sampling, literal):
        """The mean weight is one. The second moment is 1/b, 1 + 1/b with replacement; epochs use every sample once."""
        samples, batches = 4096, Batches(sampling, 0.25)
        private = Private(0, int(sampling in ("epochs", "cyclic")), int(sampling in ("subsets", "replacement")), 4)
        columns = Columns(samples, (0,), 3, 2, private)
        key = jax.random.key(0)
        drawn = [
            np.asarray(batches.drawn(key, samples, jnp.asarray(t)) if literal else batches.weights(columns, t))
            for t in range(8)
        ]
        np.testing.assert_allclose(np.mean(drawn, axis=1), 1, atol=2e-3)
        expected = 5.0 if sampling == "replacement" else 4.0
        # Poisson counts of 4096 samples: a relative spread of the second moment of about 0.03.
        np.testing.assert_allclose(np.mean(np.square(drawn), axis=1), expected, rtol=0.15)
        first, second = np.sum(drawn[:4], axis=0), np.sum(drawn[4:], axis=0)
        if sampling in ("epochs", "cyclic"):
            np.testing.assert_array_equal(first, 4)
            np.testing.assert_array_equal(second, 4)
        # Batches of two epochs: equal if cyclic, otherwise independent.
        product = np.mean(drawn[0] * drawn[4])
        assert product == 4 if sampling == "cyclic" else product == pytest.approx(1, abs=0.15)

    @pytest.mark.parametrize("literal", [False, True])
    def test_the_last_batch_of_an_epoch_may_be_smaller_and_is_averaged_over_its_own_size(self, literal):
        batches = Batches("epochs", 3 / 8)
        columns = Columns(1024, (0,), 3, 2, Private(0, 1, 0, 3))
        sizes = []
        for t in range(3):
            weights = batches.drawn(jax.random.key(1), 1024, t) if literal else batches.weights(columns, t)
            sizes.append(float(np.mean(np.asarray(weights) > 0)))
            assert float(np.mean(weights)) == pytest.approx(1, abs=1e-12)
        np.testing.assert_allclose(sizes, [3 / 8, 3 / 8, 2 / 8], atol=1e-12)

    @pytest.mark.parametrize("private", [Private(2, 1, 1, 4), Private(0, 0, 1), Private(1, 1, 0, 3)])
    def test_no_random_number_is_used_twice(self, private):
        columns = Columns(16, (0,), 3, 2, private)
        used = list(np.where(np.arange(83) < 3, np.arange(83), columns._dimension_of(np.arange(83))))
        used += [3 + place for place in range(private.labels)]
        steps = range(40)
        used += [columns._before(t) + place for t in steps for place in range(private.per_step)]
        epochs = [t for t in steps if t % private.steps_per_epoch == 0] if private.per_epoch else []
        used += [columns._before(t) - 1 for t in epochs]
        assert len(used) == len(set(used))
        # Nothing is left out either: all dimensions are used in order.
        assert max(used) == len(used) - 1

    def test_a_batch_of_all_samples_is_gradient_descent_to_the_last_bit(self):
        model = classifier(loss="squared", labels="teacher")
        full = model.predict([0, 3, 6], GradientDescent(0.3), solver=FEW)
        for sampling in ("subsets", "epochs", "cyclic"):
            one = model.predict([0, 3, 6], SGD(0.3, batch_fraction=1.0, sampling=sampling), solver=FEW)
            for name in full.data_vars:
                np.testing.assert_array_equal(one[name], full[name], err_msg=name)

    @pytest.mark.slow
    def test_the_noise_of_batches_is_seen(self):
        """At b = 1/4 replacement has the larger noise, and every way of sampling has some."""
        model = classifier(loss="squared", labels="teacher")
        solver = solvers.Latent(samples=4096, replicates=2)
        losses = {
            name: float(model.predict([8], SGD(0.8, batch_fraction=0.25, sampling=name), solver=solver).train_loss[0])
            for name in ("replacement", "subsets", "epochs")
        }
        full = float(model.predict([8], GradientDescent(0.8), solver=solver).train_loss[0])
        assert losses["replacement"] > 1.2 * max(losses["subsets"], losses["epochs"])
        assert min(losses.values()) > 1.05 * full

    def test_what_is_out_of_reach_is_refused_before_the_run_and_samples_are_chosen(self):
        model = classifier()
        training = SGD(0.1, batch_fraction=0.25)
        with pytest.raises(ValueError, match=r"200000 in all.*rank \* samples_per_dimension / samples.*simulate\("):
            model.predict([100_000], training)
        with pytest.raises(ValueError, match=r"would take about .* days, .*or simulate"):
            model.predict([10_000], training)
        with pytest.raises(ValueError, match="512 samples do not carry"):
            model.predict([400], training, solver=FEW)
        task = problem_of(model, training.replace(sampling="epochs"))
        assert solvers.Latent().fitted(task, np.array([300])).samples == 32768
        assert solvers.Latent().fitted(task, np.array([10])).samples == 8192

    @pytest.mark.parametrize(
        ("changed", "training", "message"),
        [
            ({}, SGD(0.1, batch_size=8), "give batch_fraction, the batch as a fraction"),
            ({}, SGD(0.1, batch_size=1, sampling="online"), "needs samples_per_dimension = inf, not 2"),
            ({"samples_per_dimension": np.inf}, SGD(0.1, batch_fraction=0.5, sampling="cyclic"), "is infinite"),
        ],
    )
    def test_batches_that_do_not_fit_the_training_set_are_refused(self, changed, training, message):
        for verb in ("predict", "simulate"):
            with pytest.raises(ValueError, match=message):
                getattr(classifier(**changed), verb)([1], training)


class TestOperations:
    def test_fields_and_pull_are_what_the_fused_step_does(self):
        """Two closures of the same samples: one takes the fused gradient, the other the two operations."""
        training = SGD(0.3, batch_fraction=0.25, sampling="subsets")
        fused, apart = (closure_of(classifier(), training) for _ in range(2))
        at, other = fused.start, apart.start
        for count in range(4):
            at = at + 0.3 * fused.gradient(at, fused.labels, fused.batch(count)).weights
            signals = apart.batch(count) * apart.signals(apart.fields(other))
            other = other + 0.3 * apart.pull(signals)
            np.testing.assert_allclose(apart.overlap(other), fused.overlap(at), rtol=1e-12)
        assert fused.rank == apart.rank == 8

    @pytest.mark.parametrize("form", ["primal", "dual"])
    def test_the_simulation_is_sgd_written_out(self, form):
        """A loop over index sets with the gradient of jax.grad, a trained readout and a fixed order of batches."""
        dimension, samples = 12, 24
        training = SGD(0.4, batch_fraction=0.25, sampling="cyclic", readout_learning_rate=0.2, weight_decay=0.1)
        model = classifier()
        task = problem_of(model, training)
        inputs = jax.random.normal(jax.random.key(1), (samples, dimension))
        start = jnp.asarray(np.random.default_rng(0).normal(size=(2, dimension)))
        data = FORMS[form].of(task, inputs, start, jax.random.key(2))
        labels = jnp.where(inputs[:, 0] >= 0, 1.0, -1.0)

        def loss(weights, readout, chosen):
            outputs = readout @ activations.erf(weights @ inputs[chosen].T)
            return jnp.mean(jnp.log1p(jnp.exp(-labels[chosen] * outputs)))

        weights, readout = start, jnp.asarray(2 * SIGNS)
        descent = Descent(training)
        state = descent.start(data)
        for count in range(6):
            chosen = jnp.arange(6) + 6 * (count % 4)
            slopes = jax.grad(loss, (0, 1))(weights, readout, chosen)
            weights, readout = (1 - 0.04) * weights - 0.4 * slopes[0], readout - 0.2 * slopes[1]
            state = descent.step(data, state, count)
        np.testing.assert_allclose(data.overlap(state.weights), weights @ weights.T, rtol=1e-11)
        np.testing.assert_allclose(data.alignment(state.weights), weights[:, :1], rtol=1e-10)
        np.testing.assert_allclose(state.readout, readout, rtol=1e-11)


class TestOptimisers:
    def test_decoupled_decay_and_clipping_are_those_of_optax(self):
        dimension, samples = 9, 20
        training = GradientDescent(0.3, momentum=0.6, weight_decay=0.2, decoupled=True, max_gradient_norm=0.15)
        task = problem_of(classifier(), training)
        inputs = jax.random.normal(jax.random.key(1), (samples, dimension))
        start = jnp.asarray(np.random.default_rng(0).normal(size=(2, dimension)))
        data = FORMS["primal"].of(task, inputs, start, jax.random.key(2))

        def loss(weights):
            return jnp.mean(task.judge(weights @ inputs.T, inputs[:, :1].T, data.labels)[0])

        chain = [optax.clip_by_global_norm(0.15), optax.trace(0.6), optax.add_decayed_weights(0.2), optax.scale(-0.3)]
        optimiser = optax.chain(*chain)
        weights, memory = start, optimiser.init(start)
        descent = Descent(training)
        state = descent.start(data)
        for count in range(5):
            updates, memory = optimiser.update(jax.grad(loss)(weights), memory, weights)
            weights = optax.apply_updates(weights, updates)
            state = descent.step(data, state, count)
        np.testing.assert_allclose(state.weights.coordinates, weights, rtol=1e-10)

    def test_averages_of_one_step_are_the_weights_and_later_ones_lag_behind(self):
        model = classifier()
        same = model.predict([0, 5], GradientDescent(0.3, ema_decay=0.0), solver=FEW)
        np.testing.assert_allclose(same.averaged_train_loss, same.train_loss, rtol=1e-12)
        late = model.predict([0, 3, 5], GradientDescent(0.3, average_from=5), solver=FEW)
        np.testing.assert_allclose(late.averaged_test_loss, late.test_loss, rtol=1e-12)
        slow = model.predict([0, 5], GradientDescent(0.3, ema_decay=0.9), solver=FEW)
        assert slow.train_loss[1] < slow.averaged_train_loss[1] < slow.averaged_train_loss[0]
        np.testing.assert_array_equal(slow.train_loss, same.train_loss)

    def test_langevin_noise_alone_lengthens_the_weights_and_nothing_else(self):
        """Without a signal, C(t) = C(0) + 2 eta T t; in simulation with fluctuations of order 1/sqrt(D)."""
        model = classifier(gradient_readout=[0.0, 0.0])
        training = GradientDescent(0.2, temperature=0.5)
        theory = model.predict([0, 4], training, solver=FEW)
        np.testing.assert_allclose(theory.overlap[1] - theory.overlap[0], 0.8 * np.eye(2), atol=1e-12)
        np.testing.assert_allclose(theory.alignment[1], theory.alignment[0], atol=1e-12)
        with jax.enable_x64(True):
            data = FORMS["primal"].of(
                problem_of(model, training), jnp.ones((2, 4000)), jnp.ones((2, 4000)), jax.random.key(0)
            )
            noise = data.noise(3)
            # Fluctuations of order 1 / sqrt(D).
            np.testing.assert_allclose(data.overlap(noise), np.eye(2), atol=0.08)
        with pytest.raises(ValueError, match="temperature.*'primal'"):
            model.simulate([0, 4], training, dimension=400, seeds=2, form="dual")

    def test_readouts_follow_the_gradient_or_are_refused(self):
        training = GradientDescent(0.3, readout_learning_rate=0.2)
        with pytest.raises(ValueError, match="gradient_readout equal to readout"):
            classifier(gradient_readout=None).predict([1], training)
        with pytest.raises(ValueError, match="with momentum is not covered"):
            classifier().predict([1], training.replace(momentum=0.5))
        curve = classifier().predict([0, 4], training, solver=FEW)
        np.testing.assert_allclose(curve.readout[0], 2 * SIGNS, rtol=1e-14)
        assert float(abs(curve.readout[1] - curve.readout[0]).max()) > 0.01


class TestLosses:
    @pytest.mark.parametrize("kind", ["squared", "huber", "logistic", "hinge"])
    def test_forces_are_minus_the_derivatives(self, kind):
        loss, outputs = Loss(kind, 0.7), jnp.linspace(-3.0, 3.0, 41) + 0.0123
        for label in (1.0, -1.0):
            slopes = jax.vmap(jax.grad(lambda f, label=label: loss.values(f, label)))(outputs)
            factor = 2 if kind == "squared" else 1
            np.testing.assert_allclose(factor * loss.force(outputs, label), -slopes, atol=1e-12)

    def test_softmax_of_two_classes_is_logistic(self):
        outputs = jnp.linspace(-3.0, 3.0, 7)
        both, labels = jnp.stack([outputs, jnp.zeros(7)]), jnp.zeros(7, int)
        logistic = Loss("logistic")
        np.testing.assert_allclose(Loss("softmax").values(both, labels), logistic.values(outputs, 1.0), rtol=1e-12)
        np.testing.assert_allclose(Loss("softmax").force(both, labels)[0], logistic.force(outputs, 1.0), rtol=1e-12)
        slopes = jax.grad(lambda f: Loss("softmax").values(f, labels).sum())(both)
        np.testing.assert_allclose(Loss("softmax").force(both, labels), -slopes, atol=1e-14)
        # A tie counts half.
        assert float(Loss("softmax").mistakes(jnp.zeros((2, 1)), jnp.zeros(1, int))[0]) == 0.5
        assert float(logistic.mistakes(jnp.zeros(1), jnp.ones(1))[0]) == 0.5

    def test_error_rates_of_one_neuron_have_closed_forms(self):
        """Sign teacher: arccos(A / sqrt C) / pi. Mixture: Phi(-kappa A / sqrt C). Counting noise of 2^15 points."""
        alignment, overlap = jnp.array([[0.6]]), jnp.array([[1.3]])
        base = {"initial_overlap": overlap, "initial_alignment": alignment, "readout": [1.0], "gradient_readout": [1.0]}
        task = problem_of(classifier(**base), GradientDescent(0.1))
        rate = measure_test(task, alignment, overlap).test_error_rate
        assert float(rate) == pytest.approx(np.arccos(0.6 / np.sqrt(1.3)) / np.pi, abs=5e-4)
        mixture = classifier(labels="cluster", cluster_means=[[0.8], [-0.8]], **base)
        rate = measure_test(problem_of(mixture, GradientDescent(0.1)), alignment, overlap).test_error_rate
        expected = 0.5 * (1 - float(jax.scipy.special.erf(0.8 * 0.6 / np.sqrt(1.3) / np.sqrt(2))))
        assert float(rate) == pytest.approx(expected, abs=5e-4)

    def test_label_noise_that_is_fixed_adds_its_variance_to_the_first_training_loss_only(self):
        plain = {"loss": "squared", "labels": "teacher"}
        solver = solvers.Latent(samples=4096, replicates=2)
        clean, noisy = (classifier(**plain, label_noise=s).predict([0], solver=solver) for s in (0.0, 0.5))
        assert float(noisy.train_loss[0] - clean.train_loss[0]) == pytest.approx(0.25, abs=0.01)
        np.testing.assert_allclose(noisy.test_loss, clean.test_loss, rtol=1e-12)
        fresh = classifier(**plain, label_noise=0.5, noise_draw="fresh").predict([0], solver=solver)
        assert float(fresh.train_loss[0]) == pytest.approx(float(clean.train_loss[0]), rel=0.01)

    def test_flips_and_sigmoid_labels_have_their_frequencies(self):
        for changes in ({"label_flips": 0.2}, {"labels": "sigmoid"}):
            closure = closure_of(classifier(**changes), GradientDescent(0.1), samples=4096)
            agree = float(np.mean(np.asarray(closure.labels) == np.sign(np.asarray(closure.index_fields[0]))))
            expected = (
                0.8 if "label_flips" in changes else float(np.mean(1 / (1 + np.exp(-np.abs(closure.index_fields[0])))))
            )
            assert agree == pytest.approx(expected, abs=0.01)
        means = classifier(labels="cluster", cluster_means=[[1.0], [-2.0]], cluster_weights=[3.0, 1.0])
        closure = closure_of(means, GradientDescent(0.1), samples=4096)
        labels, fields = np.asarray(closure.labels), np.asarray(closure.index_fields[0])
        assert np.mean(labels == 1) == pytest.approx(0.75, abs=0.002)
        np.testing.assert_allclose([fields[labels == s].mean() for s in (1, -1)], [1, -2], atol=0.03)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"labels": "teacher"}, "'logistic' needs labels .1 and -1, but labels = 'teacher'"),
            ({"loss": "softmax"}, "'softmax' needs classes"),
            ({"labels": "cluster"}, "needs cluster_means"),
            ({"label_noise": 0.3}, "use label_flips"),
            ({"loss": "squared", "labels": "teacher", "label_flips": 0.1}, "label_flips changes the sign"),
            ({"label_flips": 0.7}, "label_flips must be a number from 0 to 1/2"),
            ({"labels": "cluster", "cluster_means": [[1.0], [0.0], [-1.0]]}, "has 3 rows"),
            ({"cluster_means": [[1.0, 0.0]]}, "one column per index field"),
            ({"cluster_weights": [1.0]}, "one number for each row"),
            ({"class_readout": [[1.0, 0.0], [0.0, 1.0]]}, "class_readout replaces readout"),
        ],
    )
    def test_labels_that_do_not_fit_the_loss_are_refused(self, changes, message):
        with pytest.raises(ValueError, match=message):
            classifier(**changes)

    def test_solvers_refuse_tasks_by_name(self):
        model = classifier()
        for name in ("response", "fixed-point"):
            with pytest.raises(ValueError, match="covers the squared error.*loss = 'logistic', labels = 'sign'"):
                model.predict([1], GradientDescent(0.1), solver=name)
        with pytest.raises(ValueError, match="the solver Flow covers the squared error"):
            model.predict([1.0], GradientFlow())
        with pytest.raises(ValueError, match="kernel_alignment is defined for the squared error"):
            model.predict([1], kernel_alignment=True)
        with pytest.raises(ValueError, match="not for loss = 'logistic'"):
            model.early_alignment_rate()
        with pytest.raises(ValueError, match="the solver Response does not cover SGD"):
            model.replace(loss="squared", labels="teacher").predict(
                [1], SGD(0.1, batch_fraction=0.5), solver="response"
            )


def test_labellings_that_draw_nothing_are_equal():
    assert Labelling() == Labelling("teacher", 0.0, 0.0, False)
    assert problem(activations.linear, teachers.linear(), [1.0]).is_plain


def agree(model, training, times, *, dimension, seeds, key=0, solver=None):
    """All order parameters by the one agreement statistic: false alarms 1 %."""
    theory = model.predict(times, training, solver=solver)
    comparison = compare(theory, model.simulate(times, training, dimension=dimension, seeds=seeds, key=key))
    assert comparison.attrs["verdict"].startswith("theory and simulation agree"), comparison.attrs["verdict"]
    return comparison


@pytest.mark.parametrize(
    ("changes", "training"),
    [
        ({}, SGD(0.6, batch_fraction=0.25, momentum=0.3)),
        pytest.param(
            {"loss": "squared", "labels": "teacher", "label_noise": 0.3},
            SGD(0.6, batch_fraction=0.25, sampling="replacement", ema_decay=0.8),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_batches_meet_simulation(changes, training):
    agree(classifier(**changes), training, [2, 6, 12], dimension=100, seeds=30, solver=solvers.Latent(samples=2048))
