"""The published loop of CEM and CEGP in NumPy, for one row and a linear model."""

import numpy as np
from scipy.special import softmax


def published_loop(x, weight, bias, *, kappa, beta, rounds, steps, c, lower, upper, centre=None):
    """Return the counterfactual of one row, NaN if there is none; ``centre``: CEM's neutral values."""
    classes = len(bias)
    scale = classes / (classes - 1)
    origin = int(np.argmax(weight @ x + bias))
    best, answer, low, high = np.inf, np.full_like(x, np.nan), 0.0, 1e10

    def restrict(point):
        return np.where(np.abs(point - centre) > np.abs(x - centre), point, x)

    for _ in range(rounds):
        adv, y, found = x, x, False
        for k in range(steps):
            rate = 0.01 * np.sqrt(1 - k / steps)
            gradient = np.clip(2 * (y - x), -1000, 1000)
            proba = softmax(weight @ y + bias)
            runner_up = max((j for j in range(classes) if j != origin), key=lambda j: proba[j])
            if k > 0 and proba[origin] - proba[runner_up] > -kappa:
                jacobian = proba[:, None] * (weight - proba @ weight)
                gradient = gradient + np.clip(
                    c * scale * (jacobian[origin] - jacobian[runner_up]), -1000, 1000
                )
            y = y - rate * gradient
            change = y - x
            new = np.where(change > beta, np.minimum(y - beta, upper), x)
            new = np.where(change < -beta, np.maximum(y + beta, lower), new)
            if centre is not None:
                new = restrict(new)
            y = new + (k + 1) / (k + 4) * (new - adv)
            y = np.clip(y, lower, upper) if centre is None else restrict(y)
            adv = new
            proba = softmax(weight @ adv + bias)
            proba[origin] += kappa
            distance = np.sum((adv - x) ** 2) + beta * np.abs(adv - x).sum()
            if np.argmax(proba) != origin:
                found = True
                if distance < best:
                    best, answer = distance, adv
        if found:
            high = min(high, c)
        else:
            low = max(low, c)
        c = (low + high) / 2 if high < 1e9 else 10 * c
    return answer
