"""The command that measures transfer of learning rates: the numbers of the function, and mistakes in one line."""

import json
from pathlib import Path

import numpy as np
import pytest

from solvable import networks
from solvable.cli import main

RNG = np.random.default_rng(0)
INPUTS = RNG.normal(size=(60, 3))
SMALL = ("--widths", "4,8", "--learning-rates", "0.05:0.2:3log", "--steps", "4", "--seeds", "4")


@pytest.fixture
def data(tmp_path: Path) -> str:
    np.savez(tmp_path / "data.npz", inputs=INPUTS, targets=np.sin(INPUTS[:, 0]))
    return str(tmp_path / "data.npz")


def test_the_command_gives_the_numbers_of_the_function(data: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["transfer", "--data", data, *SMALL, "--test-share", "0", "--json"])
    assert ended.value.code == 0
    found = json.loads(capsys.readouterr().out)
    source = networks.Fixed(INPUTS, np.sin(INPUTS[:, :1]))
    report = networks.transfer(
        "maximal-update", source, widths=[4, 8], learning_rates=np.geomspace(0.05, 0.2, 3), steps=4, seeds=4
    )
    assert found == json.loads(report.to_json())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--widths", "4,wide"), "--widths '4,wide' must be whole numbers"),
        (("--widths", "4"), "needs two widths or more"),
        (("--test-share", "1"), "--test-share 1 must be zero or more and below one"),
        (("--model", "standart"), "must be one of 'standard'"),
        (("--model", "nowhere:network"), "there is no module 'nowhere'"),
        (("--seeds", "2"), "an interval needs 4 seeds or more"),
        (("--optimiser", "lion"), "optimiser must be one of 'sgd', 'adam'"),
        (("--plot", "rates.txt"), "must end in one of .png"),
        (("--data", "short.npz"), "short.npz has 60 inputs and targets of shape (50,): each input needs one"),
        (("--loss", "cross-entropy"), "cross-entropy needs classes"),
        (("--steps", "2"), "lower it, or train for more steps"),
    ],
)
def test_mistakes_end_in_one_line(
    data: str,
    arguments: tuple[str, ...],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(Path(data).parent)
    np.savez("short.npz", inputs=INPUTS, targets=np.zeros(50))
    with pytest.raises(SystemExit) as ended:
        main(["transfer", "--data", data, *SMALL, *arguments])
    assert ended.value.code != 0
    said = capsys.readouterr().err.strip()
    assert message in said
    assert "\n" not in said
