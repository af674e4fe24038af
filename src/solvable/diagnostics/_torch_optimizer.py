"""The update rule of a torch optimiser, with the preconditioner from its state. Imported only for torch."""

from typing import Any

import numpy as np
import torch

from solvable.diagnostics.update_rule import NoStepYetError, UpdateRule, adam_scale

_COVERED = "SGD, Adam, AdamW or RMSprop"


def rule_of(optimizer: Any) -> UpdateRule:
    """The rule of ``torch.optim.SGD``, ``Adam``, ``AdamW`` or ``RMSprop``; ``scale`` maps parameters to tensors."""
    name = type(optimizer).__name__
    if name not in ("SGD", "Adam", "AdamW", "RMSprop"):
        raise ValueError(
            f"the edge of stability of {name} is not known: use {_COVERED}, or give an UpdateRule with its scale"
        )
    groups = optimizer.param_groups
    if any(group.get("maximize") for group in groups):
        raise ValueError(f"the optimizer {name} maximizes: the edge of stability is that of a descent")
    common = {_constants(name, group) for group in groups}
    if len(common) > 1:
        raise ValueError(
            f"the parameter groups of {name} differ in momentum or dampening, so that they have no common edge: give "
            "optimizers with one group each"
        )
    momentum, nesterov, dampening = common.pop()
    rate = max(float(group["lr"]) for group in groups)
    decays = {p: float(group["weight_decay"]) for group in groups for p in group["params"]}
    decoupled = name == "AdamW" or any(group.get("decoupled_weight_decay") for group in groups)
    uniform = name == "SGD" and len({float(group["lr"]) for group in groups}) == 1
    scale = {
        parameter: (float(group["lr"]) / rate if rate else 1.0) * _scale(name, group, optimizer.state, parameter)
        for group in ([] if uniform else groups)
        for parameter in group["params"]
    }
    return UpdateRule(
        rate,
        momentum,
        nesterov,
        dampening,
        weight_decay=0.0 if decoupled or not any(decays.values()) else decays,
        decoupled_weight_decay=max(decays.values()) if decoupled else 0.0,
        scale=scale or None,
        name=name,
    )


def _constants(name: str, group: Any) -> tuple[float, bool, float]:
    """Momentum, whether it is Nesterov's, and dampening."""
    if name in ("Adam", "AdamW"):
        return float(group["betas"][0]), False, float(group["betas"][0])
    momentum = float(group["momentum"])
    dampening = float(group.get("dampening", 0.0)) if momentum else 0.0
    return momentum, bool(group.get("nesterov", False)), dampening


def _scale(name: str, group: Any, states: Any, parameter: torch.Tensor) -> Any:
    """What the optimiser multiplies the gradient of a parameter by, besides its learning rate."""
    state = states.get(parameter, {})
    if name == "SGD":
        return np.ones(tuple(parameter.shape))
    key = "max_exp_avg_sq" if group.get("amsgrad") else "exp_avg_sq" if name != "RMSprop" else "square_avg"
    if key not in state:
        if not parameter.requires_grad:
            return np.ones(tuple(parameter.shape))
        raise NoStepYetError(
            f"the optimizer {name} has made no step for a parameter of shape {tuple(parameter.shape)}: its "
            "preconditioner is known after the first step"
        )
    squares = _numpy(state[key])
    if name == "RMSprop":
        centre = _numpy(state["grad_avg"]) ** 2 if group.get("centered") else 0.0
        return 1 / (np.sqrt(np.maximum(squares - centre, 0)) + float(group["eps"]))
    beta1, beta2 = (float(beta) for beta in group["betas"])
    return adam_scale(squares, float(state["step"]), beta1, beta2, float(group["eps"]))


def _numpy(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().cpu().double().numpy()
