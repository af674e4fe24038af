"""What the variables of linear features are."""

from collections.abc import Mapping

from solvable.dataset import VARIABLES, Meaning

MEANINGS: Mapping[str, Meaning] = {
    **VARIABLES,
    "mode": Meaning("mode, in the order of the intensities", "1", "k"),
    "sample": Meaning("training sample", "1", "i"),
    "test_loss": Meaning("expected test loss on clean labels", "1", "L"),
    "train_loss": Meaning("training loss on noisy labels", "1", "L_tr"),
    "bias": Meaning("test loss of the mean learned function, without noise", "1", "B"),
    "variance": Meaning("test loss by the draw of the samples, without noise", "1", "V"),
    "noise_loss": Meaning("test loss by the noise on the training labels", "1", "N"),
    "coefficient": Meaning("coefficient of the learned function", "1", "⟨e_k|f⟩"),
    "signal_fit": Meaning("fraction of the target's power that is learned", "1"),
    "noise_fit": Meaning("fraction of the training noise that is fitted", "1"),
    "learnability": Meaning("fraction of a mode that is learned", "1", "L_k"),
    "limit_coefficient": Meaning("coefficient of the minimum-norm solution", "1", "⟨e_k|f⟩"),
    "limit_test_loss": Meaning("test loss of the minimum-norm solution", "1", "L(∞)"),
    "limit_train_loss": Meaning("training loss of the minimum-norm solution", "1", "L_tr(∞)"),
    "limit_bias": Meaning("bias of the minimum-norm solution", "1", "B(∞)"),
    "limit_variance": Meaning("variance of the minimum-norm solution", "1", "V(∞)"),
    "limit_noise_loss": Meaning("test loss of the minimum-norm solution by noise", "1", "N(∞)"),
    "inputs": Meaning("position of the training sample", "1", "x"),
    "labels": Meaning("noisy label of the training sample", "1", "y"),
    "signal_time": Meaning("time by which the signal is learned", "flow time"),
    "noise_time": Meaning("time by which the noise is fitted", "flow time"),
}
