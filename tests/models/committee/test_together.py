"""Many committees in one program: the numbers of single predictions, for every setting."""

import numpy as np
import pytest

import solvable
from solvable import Committee, GradientDescent, activations, solvers

SOLVER = solvers.Latent(samples=512, replicates=2)
TIMES = [0, 7, 30]


def test_predictions_are_those_of_single_ones():
    """Settings that differ in every number a plane can have; one of them opens many directions, one few."""
    models = [
        Committee(samples_per_dimension=ratio, output_scale=scale, activation=activations.quadratic(strength))
        for ratio, scale, strength in ((6.0, 0.5, 0.3), (3.0, 1.0, 0.1), (9.0, 0.25, 0.05))
    ]
    trainings = [
        GradientDescent(0.25),
        GradientDescent(0.2, momentum=0.5),
        GradientDescent(0.1, weight_decay=0.1),
    ]
    together = Committee.predict_many(models, TIMES, trainings, solver=SOLVER, progress=False)
    for model, training, found in zip(models, trainings, together, strict=True):
        alone = model.predict(TIMES, training, solver=SOLVER)
        for name in alone.data_vars:
            # Only the order of sums differs; steps amplify rounding errors a little.
            np.testing.assert_allclose(found[name], alone[name], rtol=1e-9, atol=1e-11, err_msg=name)


def test_nesterov_is_that_of_single_predictions():
    training = GradientDescent(0.2, momentum=0.6, nesterov=True)
    (found,) = Committee.predict_many([Committee()], TIMES, [training], solver=SOLVER, progress=False)
    np.testing.assert_allclose(
        found.test_loss, Committee().predict(TIMES, training, solver=SOLVER).test_loss, rtol=1e-9
    )


@pytest.mark.parametrize(
    ("models", "trainings", "options"),
    [
        ([Committee(activation="relu")], [GradientDescent(0.1)], {}),
        ([Committee()], [GradientDescent(0.1, temperature=0.1)], {}),
        ([Committee(), Committee()], [GradientDescent(0.1, momentum=0.5, nesterov=n) for n in (True, False)], {}),
        ([Committee(loss="huber")], [GradientDescent(0.1)], {}),
        ([Committee()], [GradientDescent(0.1)], {"correlations": True}),
        ([Committee()], [solvable.GradientFlow()], {}),
        ([Committee(samples_per_dimension=np.inf)], [GradientDescent(0.1)], {}),
    ],
)
def test_what_has_no_common_program_is_left_to_single_predictions(models, trainings, options):
    assert Committee.predict_many(models, TIMES, trainings, **options) is None


def test_a_sweep_of_one_program_is_that_of_single_cells():
    """Also over names of activations; and a cell that diverges says so itself."""
    axes = {"learning_rate": [0.1, 5.0], "activation": ["quadratic(0.3)", "quadratic(0.05)"]}
    found = {}
    for engine in ("vmap", "serial"):
        with pytest.warns(solvable.sweeps.SweepWarning, match="diverged"):
            found[engine] = solvable.sweep(
                Committee(),
                axes,
                "predict",
                options={"times": TIMES, "solver": SOLVER},
                training=GradientDescent(0.25),
                engine=engine,
                progress=False,
            )
    assert found["vmap"].attrs["engine"] == "vmap"
    for name in ("train_loss", "test_loss", "alignment", "test_loss_error"):
        np.testing.assert_allclose(found["vmap"][name], found["serial"][name], rtol=1e-9, atol=1e-11)
    assert (found["vmap"].status == found["serial"].status).all()
