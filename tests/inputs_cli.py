"""Command lines that are mistakes: each must end with exit code 2 and one line on stderr that has the given words.

The list is data, for the parametrised test of bad inputs. Commands run in an empty folder that :func:`prepare` fills.
"""

from pathlib import Path

import numpy as np

LE = ("linear-estimator", "--aspect-ratio", "0.9")
PREDICT = ("predict", *LE)
SIMULATE = ("simulate", *LE, "--times", "1,2", "--inputs", "20", "--seeds", "2")
COMPARE = ("compare", *LE, "--times", "1,2", "--inputs", "20", "--seeds", "2")
PLANE = ("phase-diagram", "linear-estimator")
SWEEP = ("sweep", "linear-estimator", "--quantity", "limits")
SKILLS = ("predict", "skills", "--exponent", "0.6")
FEATURES = ("predict", "linear-features", "--intensities", "1,0.5", "--target", "1,1")
SCALAR = ("simulate", "scalar-network", "--first", "0.1,0.2", "--second", "0.1,0.1", "--target", "1", "--times", "1,2")
HUGE = "99999999999999999999"


def prepare(folder: Path) -> None:
    """Files that commands of the list name: not an archive, an archive without the right entries, a plain folder."""
    (folder / "text.npz").write_text("this is no archive")
    np.savez(folder / "empty.npz")
    np.savez(folder / "other.npz", something=np.zeros(3))
    np.savez(folder / "both.npz", inputs=np.zeros((3, 2)), targets=np.zeros(3), labels=np.zeros(3, int))
    np.savez(folder / "good.npz", inputs=np.eye(24), targets=np.arange(24.0))
    (folder / "folder.nc").mkdir()
    (folder / "folder.png").mkdir()
    (folder / "file").write_text("not a folder")


INPUTS: list[tuple[tuple[str, ...], str]] = [
    # Commands and models that are not there.
    (("predikt",), "No such command 'predikt'"),
    (("predict", "linear-estimater"), "did you mean 'linear-estimator'"),
    (("predict", "nothing-like-it"), "there are: linear-estimator"),
    (("simulate", "Skills"), "did you mean 'skills'"),
    (("compare", ""), "no model is named ''"),
    (("--colour",), "No such option: --colour"),
    (("models", "all"), "unexpected extra argument"),
    (("models", "--jsn"), "No such option: --jsn"),
    (("grokking-time", "skills"), "models that have one: linear-estimator"),
    (("grokking-time", "committee"), "has no grokking time"),
    (("phase-diagram", "parity-mode"), "models that have one: linear-estimator"),
    (("phase-diagram", "skils"), "did you mean 'skills'"),
    (("explore", "skils"), "did you mean 'skills'"),
    # Parameters of models.
    (("predict", "linear-estimator", "--aspect-ratio", "-1"), "aspect_ratio must be a positive finite number, not -1"),
    (("predict", "linear-estimator", "--aspect-ratio", "0"), "aspect_ratio must be a positive finite number, not 0"),
    (("predict", "linear-estimator", "--aspect-ratio", "nan"), "aspect_ratio must be a positive finite number"),
    (("predict", "linear-estimator", "--aspect-ratio", "inf"), "aspect_ratio must be a positive finite number"),
    (("predict", "linear-estimator", "--aspect-ratio", "big"), "'big'"),
    (("predict", "linear-estimator", "--aspect-ratio", ""), "--aspect-ratio"),
    (("predict", "linear-estimator", "--aspect-ratio"), "requires an argument"),
    ((*PREDICT, "--wait-decay", "1"), "No such option: --wait-decay"),
    ((*PREDICT, "--weight-decay", "-0.1"), "weight_decay must be"),
    ((*PREDICT, "--weight-decay", "1e400"), "weight_decay must be"),
    ((*PREDICT, "--outputs", "0"), "outputs must be a whole number, 1 or more, not 0"),
    ((*PREDICT, "--outputs", "1.5"), "'1.5'"),
    ((*PREDICT, "--outputs", HUGE), "is too large"),
    ((*PREDICT, "--hidden", "2", "--outputs", "5"), "hidden >= outputs"),
    ((*PREDICT, "--learning-rate", "nan"), "learning_rate must be"),
    ((*PREDICT, "--label-noise", "-1"), "label_noise must be"),
    ((*PREDICT, "--threshold", "-1"), "threshold must be"),
    ((*PREDICT, "--descent", "sideways"), "'sideways' is not one of 'flow', 'discrete'"),
    ((*PREDICT, "extra"), "unexpected extra argument"),
    ((*SKILLS, "--skills", "0"), "skills must be a whole number, 1 or more, or inf, not 0"),
    ((*SKILLS, "--skills", "2.5"), "skills must be a whole number, 1 or more, or inf"),
    ((*SKILLS, "--samples", "-3"), "samples must be a whole number, 1 or more, or inf"),
    ((*SKILLS, "--kind", "cubic"), "kind must be one of multilinear, linear, not 'cubic'"),
    ((*SKILLS, "--rate", "0"), "rate must be a positive finite number"),
    ((*SKILLS, "--shots", "0"), "shots must be a whole number"),
    (("predict", "skills", "--exponent", "-0.5"), "exponent must be a positive finite number"),
    ((*FEATURES, "--samples", "0"), "samples must be a whole number, 1 or more, or inf, not 0"),
    ((*FEATURES, "--samples", "many"), "'many' is not a whole number, 1 or more, or inf"),
    ((*FEATURES, "--samples", "2.5"), "'2.5' is not a whole number"),
    ((*FEATURES, "--samples", "-inf"), "'-inf' is not a whole number"),
    ((*FEATURES, "--samples", HUGE), "--samples 99999999999999999999 is too large"),
    ((*FEATURES, "--modes", "0"), "modes must be a whole number"),
    ((*FEATURES, "--noise", "-1"), "noise must be"),
    (("predict", "linear-features", "--intensities", "1,-1", "--target", "1,1"), "intensities[1] = -1"),
    (("predict", "linear-features", "--intensities", "1,x", "--target", "1,1"), "must look like 1:1e5:200log"),
    (("predict", "linear-features", "--intensities", "", "--target", "1"), "must look like 1:1e5:200log"),
    (("predict", "linear-features", "--intensities", "1,2,3", "--target", "1,1"), "target"),
    (("predict", "linear-network", "--correlation", "1,2;3"), "is no matrix"),
    (("predict", "linear-network", "--singular-values", "1,2", "--width", "0"), "width must be"),
    (("predict", "linear-network", "--singular-values", "1,2", "--correlation", "1,0;0,1"), "not both"),
    (("predict", "parity-mode", "--target-scale", "0"), "target_scale must be"),
    (
        (
            "predict",
            "diagonal-network",
            "--variances",
            "1,2",
            "--target-scales",
            "a,b",
            "--first",
            "1",
            "--second",
            "1",
        ),
        "must look like",
    ),
    (
        ("predict", "committee", "--samples-per-dimension", "-1"),
        "must be a positive number, or inf, not -1",
    ),
    (("predict", "feature-scaling", "--capacity", "0.5", "--source", "1"), "capacity must be"),
    # Times.
    ((*PREDICT, "--times", ""), "must look like 1:1e5:200log"),
    ((*PREDICT, "--times", "1:10"), "must look like 1:1e5:200log"),
    ((*PREDICT, "--times", "1:10:5:7"), "must look like 1:1e5:200log"),
    ((*PREDICT, "--times", "a,b"), "must look like 1:1e5:200log"),
    ((*PREDICT, "--times", "1;2"), "must look like 1:1e5:200log"),
    ((*PREDICT, "--times", "1:10:1"), "at least 2 values"),
    ((*PREDICT, "--times", "1:10:-5"), "at least 2 values"),
    ((*PREDICT, "--times", "1:10:2.5"), "must look like 1:1e5:200log"),
    ((*PREDICT, "--times", "0:10:5log"), "between positive numbers"),
    ((*PREDICT, "--times", "1:inf:5"), "between finite numbers"),
    ((*PREDICT, "--times", "nan:1:5"), "between finite numbers"),
    ((*PREDICT, "--times", "10,1"), "times must increase"),
    ((*PREDICT, "--times", "1,1"), "times must increase"),
    ((*PREDICT, "--times", "-1,1"), "times must be not negative"),
    ((*PREDICT, "--times", "1,nan"), "times must be finite"),
    ((*PREDICT, "--times", "1,inf"), "times must be finite"),
    ((*PREDICT, "--times", "1:1e5:1000000000log"), "asks for 1000000000 values, 8 GB"),
    ((*SIMULATE, "--times", "1:1e5:1000000000"), "asks for 1000000000 values, 8 GB"),
    # Files.
    ((*PREDICT, "--out", ""), "--out is empty"),
    ((*PREDICT, "--out", "run"), "--out: 'run' must end in one of .nc, .zarr, .npz, .csv"),
    ((*PREDICT, "--out", "run.txt"), "must end in one of .nc, .zarr, .npz, .csv"),
    ((*PREDICT, "--out", "run.nc.gz"), "must end in one of .nc, .zarr, .npz, .csv"),
    ((*PREDICT, "--out", "nowhere/run.nc"), "no folder nowhere"),
    ((*PREDICT, "--out", "file/run.nc"), "no folder file"),
    ((*PREDICT, "--out", "folder.nc"), "it is a folder"),
    ((*PREDICT, "--plot", ""), "--plot is empty"),
    ((*PREDICT, "--plot", "run.gif"), "--plot: 'run.gif' must end in one of .png, .svg, .pdf"),
    ((*PREDICT, "--plot", "nowhere/run.png"), "no folder nowhere"),
    ((*PREDICT, "--plot", "folder.png"), "it is a folder"),
    ((*SIMULATE, "--out", "run.json"), "must end in one of .nc, .zarr, .npz, .csv"),
    ((*COMPARE, "--plot", "run.jpeg"), "must end in one of .png, .svg, .pdf"),
    (("grokking-time", *LE, "--out", "run.xlsx"), "must end in one of .nc, .zarr, .npz, .csv"),
    (("grokking-time", *LE, "--plot", "run.png"), "No such option: --plot"),
    (("demo", "--out", "file"), "cannot make this folder"),
    (("demo", "--out", ""), "--out is empty"),
    # Simulations and comparisons.
    ((*SIMULATE, "--seeds", "0"), "seeds must be a whole number, 1 or more, not 0"),
    ((*SIMULATE, "--seeds", "-5"), "seeds must be a whole number, 1 or more, not -5"),
    ((*SIMULATE, "--seeds", "1000000000000"), "would take about 16 TB of memory"),
    ((*SIMULATE, "--seeds", HUGE), "--seeds 99999999999999999999 is too large"),
    ((*SIMULATE, "--key", HUGE), "--key 99999999999999999999 is too large"),
    ((*SIMULATE, "--key", f"-{HUGE}"), "is too large"),
    ((*SIMULATE, "--key", "1.5"), "'1.5'"),
    ((*SIMULATE, "--inputs", "0"), "inputs must be a whole number"),
    ((*SIMULATE, "--batch", "0"), "batch must be a whole number"),
    ((*SIMULATE, "--momentum", "2"), "momentum"),
    ((*PREDICT, "--descent", "discrete", "--learning-rate", "9"), "diverges"),
    ((*SIMULATE, "--method", "magic"), "magic"),
    ((*SIMULATE, "--test-samples", "few"), "'few' is not a whole number"),
    ((*SCALAR, "--samples", "0"), "samples must be a whole number"),
    ((*SCALAR, "--learning-rate", "-1"), "learning_rate must be"),
    ((*COMPARE, "--seeds", "1"), "need 2 seeds or more"),
    ((*COMPARE, "--seeds", "0"), "need 2 seeds or more"),
    # Grokking times and planes.
    (("grokking-time", *LE, "--accuracy", "2"), "accuracy must lie between 0 and 1"),
    (("grokking-time", *LE, "--accuracy", "nan"), "accuracy must lie between 0 and 1"),
    (("grokking-time", *LE, "--descent", "up"), "'up' is not one of 'flow', 'discrete'"),
    (PLANE, "Missing option '--x'"),
    ((*PLANE, "--x", "aspect_ratio=1,2"), "Missing option '--y'"),
    ((*PLANE, "--x", "aspect_ratio", "--y", "outputs=1:5:5"), "must look like"),
    ((*PLANE, "--x", "=1,2", "--y", "outputs=1:5:5"), "must look like"),
    ((*PLANE, "--x", "outputs=1:5:5", "--y", "outputs=1:5:5"), "two different parameters"),
    ((*PLANE, "--x", "colour=1:5:5", "--y", "outputs=1:5:5"), "no parameter 'colour'"),
    ((*PLANE, "--x", "aspect_ratio=0.1,-1", "--y", "outputs=1:5:5"), "aspect_ratio must be a positive finite number"),
    ((*PLANE, "--x", "aspect_ratio=0.1,1", "--y", "outputs=1:2:3"), "outputs must be a whole number"),
    ((*PLANE, "--x", "aspect_ratio=0.1,1", "--y", "hidden=1,2"), "hidden cannot be an axis"),
    (
        (*PLANE, "--x", "aspect_ratio=0.1:1:1000000", "--y", "weight_decay=0.1:1:1000000"),
        "(1000000 aspect_ratio x 1000000 weight_decay) would take about 26 TB of memory and 3.17 years",
    ),
    # Sweeps.
    (("sweep", "linear-estimator"), "Missing option '--over'"),
    (("sweep", "--status", "nowhere.zarr"), "nowhere.zarr"),
    (("sweep", "--status", "folder.nc"), "folder.nc"),
    ((*SWEEP, "--over", "weight_decay"), "must look like"),
    ((*SWEEP, "--over", "aspect_ratio="), "must look like"),
    ((*SWEEP, "--over", "aspect_ratio=0.1:2"), "must look like 1:1e5:200log"),
    ((*SWEEP, "--over", "aspect_ratio=1,1"), "appears twice"),
    ((*SWEEP, "--over", "aspect_ratio=0.1,-2"), "positive finite number"),
    ((*SWEEP, "--over", "aspect_ratio=a,b"), "aspect_ratio"),
    ((*SWEEP, "--over", "aspekt=0.1,2", "--aspect-ratio", "1"), "no parameter 'aspekt'"),
    ((*SWEEP, "--over", "aspect_ratio=0.1,2", "--sobol", "4"), "a random design needs ranges"),
    ((*SWEEP, "--over", "aspect_ratio=1:2", "--sobol", "4", "--latin-hypercube", "4"), "not both"),
    ((*SWEEP, "--over", "aspect_ratio=1:2", "--sobol", "0"), "--sobol must be a whole number, 1 or more, not 0"),
    ((*SWEEP, "--over", "aspect_ratio=2:1", "--sobol", "4"), "low"),
    ((*SWEEP, "--over", "aspect_ratio=a:b", "--sobol", "4"), "must look like 0.05:3"),
    ((*SWEEP, "--zip", "aspect_ratio=1,2", "--zip", "weight_decay=1,2,3"), "equally long"),
    ((*SWEEP, "--zip", "aspect_ratio"), "must look like"),
    ((*SWEEP, "--over", "aspect_ratio=1,2", "--quantity", "magic"), "no quantity 'magic'"),
    ((*SWEEP, "--over", "aspect_ratio=1,2", "--engine", "magic"), "engine must be one of"),
    ((*SWEEP, "--over", "aspect_ratio=1,2", "--workers", "0"), "workers must be a whole number"),
    ((*SWEEP, "--over", "aspect_ratio=1,2", "--tile", "0"), "tile"),
    ((*SWEEP, "--over", "aspect_ratio=1,2", "--option", "magic"), "must look like"),
    ((*SWEEP, "--over", "aspect_ratio=1,2", "--option", "magic=1"), "magic"),
    ((*SWEEP, "--over", "aspect_ratio=1,2", "--store", "a.nc"), ".zarr"),
    ((*SWEEP, "--over", "aspect_ratio=1,2", "--store", "nowhere/a.zarr"), "nowhere"),
    ((*SWEEP, "--over", "aspect_ratio=1,2", "--store", "a.zarr", "--out", "./a.zarr"), "--store and --out are both"),
    ((*SWEEP, "--over", "aspect_ratio=1,2", "--plot", "a.txt"), "must end in one of .png, .svg, .pdf"),
    ((*SWEEP, "--over", "aspect_ratio=1,2", "--out", "a.txt"), "must end in one of .nc, .zarr, .npz, .csv"),
    (
        (*SWEEP, "--over", "aspect_ratio=0.1:1:1000000", "--over", "weight_decay=0.1:1:1000000"),
        "a sweep of 1e+12 cells",
    ),
    ((*SWEEP, "--over", "aspect_ratio=1:2", "--sobol", "100000000000"), "a sweep of 1e+11 cells"),
    # Papers.
    (("reproduce", "linear-groking"), "did you mean 'linear-grokking'"),
    (("reproduce", "fig6"), "fig6"),
    (("reproduce", "linear-grokking", "fig99"), "no figure of linear-grokking is named 'fig99'"),
    (("reproduce", "all", "fig6"), "drop 'fig6'"),
    (("reproduce", "linear-grokking", "fig6", "--scale", "huge"), "'quick', 'full'"),
    (("reproduce", "linear-grokking", "fig6", "--only", "passing"), "'failing'"),
    (("reproduce", "linear-grokking", "fig6", "--out", "file"), "cannot make this folder"),
    (("reproduce", "linear-grokking", "fig6", "--out", ""), "--out is empty"),
    # Networks.
    (("diagnose",), "give a file of features"),
    (("diagnose", "nowhere.npz"), "nowhere.npz"),
    (("diagnose", "text.npz"), "text.npz"),
    (("diagnose", "empty.npz"), "empty.npz"),
    (("diagnose", "other.npz"), "train_features"),
    (("diagnose", "other.npz", "--plot", "a.gif"), "must end in"),
    (("diagnose", "other.npz", "--checkpoint", "a.pt"), "not both"),
    (("diagnose", "--checkpoint", "a.pt"), "give a file of features"),
    (("forecast",), "Missing option '--model'"),
    (("forecast", "--model", "mlp:8x2"), "Missing option '--data'"),
    (("forecast", "--model", "mlp:8x2", "--data", "nowhere.npz"), "nowhere.npz"),
    (("forecast", "--model", "mlp:8x2", "--data", "text.npz"), "text.npz"),
    (("forecast", "--model", "mlp:8x2", "--data", "other.npz"), "inputs"),
    (("forecast", "--model", "mlp:8x2", "--data", "both.npz"), "both targets and labels"),
    (("forecast", "--model", "mlp:0x2", "--data", "good.npz"), "mlp:0x2"),
    (("forecast", "--model", "nothing", "--data", "good.npz"), "must look like module:function"),
    (("forecast", "--model", "no_such_module:f", "--data", "good.npz"), "no module 'no_such_module'"),
    (("forecast", "--model", "math:no_such", "--data", "good.npz"), "has no function 'no_such'"),
    (("forecast", "--model", "mlp:8x2", "--data", "good.npz", "--start", "middle"), "start"),
    (("forecast", "--model", "mlp:8x2", "--data", "good.npz", "--draws", "0"), "draws"),
    (("forecast", "--model", "mlp:8x2", "--data", "good.npz", "--key", HUGE), "--key"),
    (("forecast", "--model", "mlp:8x2", "--data", "good.npz", "--plot", "a.bmp"), "must end in"),
    # Image data.
    (("data", "fetch"), "Missing argument 'NAME"),
    (("data", "fetch", "nothing"), "nothing"),
    (("data", "lst"), "No such command 'lst'"),
]
