"""Inverting a model's gradient: what one message of a training tells about the example behind it.

The gradient of a layer that sees the example, s = W x + b, is the outer product of the layer's
errors and (x, 1): so it gives x exactly, as every row divided by its entry for b. Behind a
mechanism it is that plus noise, of rank one still, and two attackers read it:

* one who knows the model's shape alone takes the best approximation of rank one;
* one who knows the model, and so the layer's errors up to the label, tries every label and keeps
  the one that explains most.

Both are simulations: what they find bounds nothing. How often *any* attacker finds a direction is
bounded in `beam_ldp.accounting.reconstruction`, and here it is seen what that looks like.

Source: Bhowmick, Duchi, Freudiger, Kapoor and Rogers 2018, sections 1 and 2 (the threat).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from beam_ldp.randomizers.checks import check_integer
from beam_ldp.randomizers.mean.base import MeanRandomizer
from beam_ldp.research.attacks.messages import read_messages


@dataclass(frozen=True, eq=False)
class SmallNetwork:
    """A classifier of one layer, or of two with tanh between them; softmax and cross entropy.

    Attributes:
        layers: `(outputs, inputs + 1)` each, the last column for b; one or two.

    >>> net = SmallNetwork.drawn(4, 3, hidden=5, seed=1)
    >>> net.num_parameters, net.gradient(np.ones(4), label=2).shape
    (43, (43,))
    """

    layers: tuple[np.ndarray, ...]

    def __post_init__(self) -> None:
        sizes = [layer.shape for layer in self.layers if layer.ndim == 2]
        if len(sizes) != len(self.layers) or not 1 <= len(sizes) <= 2:
            raise ValueError("layers must be one or two matrices")
        if len(sizes) == 2 and sizes[1][1] != sizes[0][0] + 1:
            raise ValueError("layers must fit: the second takes the outputs of the first, and one")

    @classmethod
    def drawn(cls, inputs: int, classes: int, hidden: int = 0, seed: int = 0) -> SmallNetwork:
        """A network at the start of its training: normal weights, 1/sqrt(inputs) in size.

        Args:
            inputs: numbers of an example.
            classes: of labels.
            hidden: units between, 0 for a single layer.
            seed: of the weights.
        """
        check_integer("inputs", inputs, 1)
        check_integer("classes", classes, 2)
        check_integer("hidden", hidden, 0)
        rng = np.random.default_rng(seed)
        sizes = [(inputs, hidden), (hidden, classes)] if hidden else [(inputs, classes)]
        return cls(tuple(rng.standard_normal((b, a + 1)) / np.sqrt(a) for a, b in sizes))

    @property
    def num_parameters(self) -> int:
        """Numbers of a gradient."""
        return sum(layer.size for layer in self.layers)

    def errors(self, x: np.ndarray, label: int) -> tuple[np.ndarray, ...]:
        """Derivatives of the loss by every layer's outputs, for one example `(inputs,)`."""
        first = self.layers[0] @ np.append(x, 1.0)
        scores = first if len(self.layers) == 1 else self.layers[1] @ np.append(np.tanh(first), 1.0)
        chances = np.exp(scores - scores.max())
        last = chances / chances.sum()
        last[label] -= 1.0
        if len(self.layers) == 1:
            return (last,)
        return (self.layers[1][:, :-1].T @ last) * (1 - np.tanh(first) ** 2), last

    def gradient(self, x: np.ndarray, label: int) -> np.ndarray:
        """Of the loss of one example, `(num_parameters,)`: the first layer's part comes first."""
        errors = self.errors(x, label)
        seen = [np.append(x, 1.0)]
        if len(self.layers) == 2:
            seen.append(np.append(np.tanh(self.layers[0] @ seen[0]), 1.0))
        return np.concatenate([np.outer(e, s).ravel() for e, s in zip(errors, seen)])

    def first_layer(self, gradient: np.ndarray) -> np.ndarray:
        """The part of a gradient that belongs to the first layer, `(outputs, inputs + 1)`."""
        layer = self.layers[0]
        return gradient[: layer.size].reshape(layer.shape)


def invert_rank_one(layer_gradient: np.ndarray) -> np.ndarray:
    """The direction of the example, by whoever knows the shape of the layer alone.

    Args:
        layer_gradient: `(outputs, inputs + 1)`, noisy or not; without noise x is found exactly.

    Returns:
        `(inputs,)`: the first right singular vector without its entry for b, in the unit in which
        that one is 1; of length 1 where that is too small to tell the unit.

    >>> x = np.array([3.0, -4.0])
    >>> invert_rank_one(np.outer([0.1, -0.7], [*x, 1.0])).round(9).tolist()
    [3.0, -4.0]
    """
    _, _, rows = np.linalg.svd(layer_gradient, full_matrices=False)
    return _without_bias(rows[0])


def invert_with_errors(layer_gradient: np.ndarray, errors: np.ndarray) -> np.ndarray:
    """The same, by whoever knows the layer's errors up to the label.

    Args:
        layer_gradient: `(outputs, inputs + 1)`.
        errors: of each label, `(labels, outputs)`, as `SmallNetwork.errors` gives them for an
            example that the attacker takes for typical.
    """
    matched = errors @ layer_gradient / np.linalg.norm(errors, axis=1, keepdims=True)
    best = int(np.argmax((matched**2).sum(axis=1)))
    return _without_bias(matched[best])


def _without_bias(found: np.ndarray) -> np.ndarray:
    """What stands before the bias, whose true entry is 1: it tells sign and unit."""
    x, one = found[:-1], found[-1]
    if abs(one) > 1e-6 * np.linalg.norm(found):
        return np.asarray(x / one)
    return np.asarray(x / max(np.linalg.norm(x), 1e-300))


@dataclass(frozen=True, eq=False)
class Inversion:
    """What one simulated attack found of several examples.

    Attributes:
        recovered: `(n, inputs)`, in no unit in particular.
        cosine: of each with the example, `(n,)`: 1 is the example itself, up to its size.
    """

    recovered: np.ndarray
    cosine: np.ndarray


def invert_messages(
    network: SmallNetwork,
    examples: np.ndarray,
    labels: np.ndarray,
    mechanism: MeanRandomizer | None,
    *,
    knows_errors: bool = True,
    rng: np.random.Generator | None = None,
) -> Inversion:
    """Send each example's gradient through a mechanism, and invert the message. A simulation.

    Gradients are clipped to the mechanism's ball, as in a training. An example that is centred
    (less a public mean) makes the blind guess worth nothing on average.

    Args:
        network: whose gradients are sent, known to the attacker.
        examples: `(n, inputs)`, none zero.
        labels: `(n,)` integers.
        mechanism: of one gradient; None sends it as it is.
        knows_errors: whether the attacker uses the model beside its shape.
        rng: of the mechanism.

    Raises:
        ValueError: if the mechanism is not of as many dimensions as the network has parameters.

    >>> net, x = SmallNetwork.drawn(6, 3), np.eye(6)[:2]
    >>> invert_messages(net, x, np.array([0, 2]), None, knows_errors=False).cosine.round(9).tolist()
    [1.0, 1.0]
    """
    gradients = np.stack([network.gradient(x, int(y)) for x, y in zip(examples, labels)])
    if mechanism is not None:
        if mechanism.dimension != network.num_parameters:
            raise ValueError(
                f"mechanism must be of {network.num_parameters} dimensions, got "
                f"{mechanism.dimension}"
            )
        sent = mechanism.randomize(gradients, rng=rng)
        gradients = read_messages(mechanism, sent)
    typical = np.zeros(examples.shape[1])
    classes = len(network.layers[-1])
    errors = np.stack([network.errors(typical, label)[0] for label in range(classes)])
    found = []
    for gradient in gradients:
        layer = network.first_layer(gradient)
        found.append(invert_with_errors(layer, errors) if knows_errors else invert_rank_one(layer))
    recovered = np.stack(found)
    lengths = np.linalg.norm(recovered, axis=1) * np.linalg.norm(examples, axis=1)
    return Inversion(recovered, (recovered * examples).sum(axis=1) / np.maximum(lengths, 1e-300))
