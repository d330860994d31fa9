"""Training of multilayer perceptrons with torch; what comes out is evaluated in NumPy (:mod:`.network`)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from ..generator.errors import MissingDependency
from .base import Matrix, Standardizer
from .config import InvalidTraining, MLPConfig, TrainingConfig
from .network import Layer, Network
from .samples import Samples
from .targets import regression_target, row_weights

if TYPE_CHECKING:
    import torch


def fit_mlp(samples: Samples, config: TrainingConfig) -> Network:
    """Train a network, or an ensemble of them.

    For the ranking objectives a batch is some groups with all their queries (:class:`.pairs.RankingLoss`), for mse some
    rows.

    Parameters
    ----------
    samples
        Training rows.
    config
        Objective, settings, seed and threads.

    Raises
    ------
    MissingDependency
        If torch is not installed.
    InvalidTraining
        If a GPU is asked for and there is none.
    """
    try:
        import torch
    except ImportError as error:
        raise MissingDependency("training this model needs torch: pip install 'cutlass-ranker[train]'") from error
    threads = torch.get_num_threads()
    torch.set_num_threads(config.threads)
    try:
        standardizer = Standardizer.fit(samples.features)
        rows = standardizer.apply(samples.features)
        device = training_device(config.mlp.device)
        members = [_member(samples, rows, config, config.seed + 1000 * i, device) for i in range(config.mlp.members)]
    finally:
        torch.set_num_threads(threads)
    return Network(standardizer, members)


def build_module(inputs: int, settings: MLPConfig) -> torch.nn.Sequential:
    """Build the torch module: linear, ReLU, dropout for each hidden layer, then one linear output."""
    import torch

    layers: list[torch.nn.Module] = []
    width = inputs
    for hidden in settings.hidden:
        layers += [torch.nn.Linear(width, hidden), torch.nn.ReLU(), torch.nn.Dropout(settings.dropout)]
        width = hidden
    return torch.nn.Sequential(*layers, torch.nn.Linear(width, 1))


def export_layers(module: torch.nn.Sequential) -> list[Layer]:
    """Return weight and bias of each linear layer as NumPy arrays."""
    import torch

    linear = [layer for layer in module if isinstance(layer, torch.nn.Linear)]
    return [(layer.weight.detach().cpu().numpy().copy(), layer.bias.detach().cpu().numpy().copy()) for layer in linear]


def training_device(wanted: str) -> torch.device:
    """Return the device to train on: ``cpu``, ``cuda``, or with ``auto`` the GPU where there is one.

    Raises
    ------
    InvalidTraining
        If a GPU is asked for and there is none.
    """
    import torch

    if wanted == "cuda" and not torch.cuda.is_available():
        raise InvalidTraining("mlp.device is 'cuda', but torch sees no GPU; use 'auto' or 'cpu'")
    if wanted == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", torch.cuda.current_device())


@contextmanager
def repeatable(device: torch.device, seed: int) -> Iterator[None]:
    """Make what torch does inside depend on the seed alone, and leave its global state as it was."""
    import torch

    # cuBLAS reads it when it is first used; without it, its results may differ from run to run.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    before = torch.are_deterministic_algorithms_enabled()
    with torch.random.fork_rng(devices=[] if device.type == "cpu" else [torch.cuda.current_device()]):
        torch.manual_seed(seed)
        torch.use_deterministic_algorithms(True)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(before)


def _member(samples: Samples, rows: Matrix, config: TrainingConfig, seed: int, device: torch.device) -> list[Layer]:
    """Train one network on standardised rows."""
    import torch

    from .pairs import RankingLoss

    settings = config.mlp
    rng = np.random.default_rng(seed)
    generator = torch.Generator(device).manual_seed(seed)
    inputs = torch.from_numpy(rows).to(device)
    target = torch.from_numpy(regression_target(samples, config).astype(np.float32)).to(device)
    share = torch.from_numpy(row_weights(samples).astype(np.float32)).to(device)

    def regression(scores: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return (share[index] * (scores - target[index]) ** 2).sum() / share[index].sum()

    if config.objective == "mse":
        ranking, units, per_batch = None, len(rows), settings.batch
    else:
        ranking, per_batch = RankingLoss(samples, config, device), settings.groups_per_batch
        members = [np.flatnonzero(samples.group == group) for group in np.unique(samples.group)]
        units = len(members)
    per_epoch = -(-units // per_batch)
    with repeatable(device, seed):
        module = build_module(rows.shape[1], settings).to(device)
        optimizer = torch.optim.AdamW(module.parameters(), settings.learning_rate, weight_decay=settings.weight_decay)
        # The schedule divides by the length of its first part, which must not be empty.
        steps = max(settings.epochs * per_epoch, 10) + 1
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, settings.learning_rate, total_steps=steps, pct_start=0.2
        )
        for _ in range(settings.epochs):
            for part in np.array_split(rng.permutation(units), per_epoch):
                if ranking is None:
                    index = torch.from_numpy(part).to(device)
                    loss = regression(module(inputs[index])[:, 0], index)
                else:
                    queries = np.sort(np.concatenate([members[unit] for unit in part]))
                    batch = ranking.batch(torch.from_numpy(queries).to(device))
                    scores = module(inputs[batch.rows])[:, 0]
                    loss = ranking(scores, batch, generator)
                    if settings.regression_weight:
                        loss = loss + settings.regression_weight * regression(scores, batch.rows)
                optimizer.zero_grad()
                torch.autograd.backward(loss)
                if settings.gradient_clip:
                    torch.nn.utils.clip_grad_norm_(module.parameters(), settings.gradient_clip)
                optimizer.step()
                schedule.step()
    return export_layers(module)
