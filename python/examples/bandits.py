"""A contextual bandit that learns from secret people: which of a few offers to make, from what is known of each of them.

One party has the contexts, another one the rewards. The learner keeps for each arm a linear model on shares (LinUCB, by Li
et al. 2010), and nobody sees it. Only the chosen arm is shown, as it must be: somebody makes the offer.
"""

import numpy as np

import trefoil

ARMS, FEATURES, PEOPLE, CURIOSITY = 3, 4, 60, 0.4

rng = np.random.default_rng(5)
contexts = rng.normal(size=(PEOPLE, FEATURES))
contexts /= np.linalg.norm(contexts, axis=1, keepdims=True)
likes = rng.normal(size=(ARMS, FEATURES))
rewards = 1 / (1 + np.exp(-4 * contexts @ likes.T))


class Learner:
    """Works on secret and on public arrays alike: `inverse` is that of each arm's matrix, `seen` what its rewards add up."""

    def __init__(self, share):
        self.inverse = share(np.stack([np.eye(FEATURES)] * ARMS))
        self.seen = share(np.zeros((ARMS, FEATURES)))

    def scores(self, x):
        weights = np.sum(self.inverse * self.seen[:, None, :], axis=2)
        # An arm that was seldom tried for such people gets the benefit of the doubt.
        spread = np.sum((self.inverse @ x) * x, axis=1)
        return weights @ x + CURIOSITY * np.sqrt(spread)

    def learn(self, x, arm, reward):
        # The formula of Sherman and Morrison: the inverse after one more row.
        moved = self.inverse[arm] @ x
        update = moved[:, None] * moved[None, :] / (np.sum(moved * x) + 1.0)
        taken = np.arange(ARMS) == arm
        self.inverse = self.inverse - taken[:, None, None] * update
        self.seen = self.seen + taken[:, None] * (x * reward)


with trefoil.local() as mpc:
    learner, arms = Learner(mpc.secret), []
    for person in range(PEOPLE):
        x = mpc.secret(contexts[person], owner=0)
        # At first the arms take turns, since all have one score.
        arm = person % ARMS if person < 2 * ARMS else int(np.argmax(learner.scores(x)).reveal())
        learner.learn(x, arm, mpc.secret(rewards[person, arm], owner=1))
        arms.append(arm)
    print(mpc.cost())
    weights = np.sum(learner.inverse * learner.seen[:, None, :], axis=2).reveal()

# The same in the clear. It makes the same offers, except perhaps where two scores are equal up to rounding.
clear, wanted = Learner(np.array), []
for person in range(PEOPLE):
    arm = person % ARMS if person < 2 * ARMS else int(np.argmax(clear.scores(contexts[person])))
    clear.learn(contexts[person], arm, rewards[person, arm])
    wanted.append(arm)

people = np.arange(PEOPLE)
later = people >= PEOPLE // 3
mean = lambda arms: rewards[people, arms][later].mean()
print(f"offers as in the clear: {np.mean(np.array(arms) == wanted):.3f}")
print(f"mean reward after the first third: {mean(arms):.3f}; in the clear {mean(wanted):.3f}; by chance "
      f"{rewards[later].mean():.3f}; at best {rewards[later].max(axis=1).mean():.3f}")
difference = np.abs(weights - np.sum(clear.inverse * clear.seen[:, None, :], axis=2)).max()
print(f"largest difference of the models: {difference:.1e}")
assert arms != wanted or difference < 1e-3
assert mean(arms) > rewards[later].mean() + 0.1
