"""Statistics of three hospitals' tables that none shows to the others."""

import numpy as np

import trefoil

rng = np.random.default_rng(7)
tables = [np.column_stack([rng.normal(60, 12, n), rng.normal(5 + i, 2, n)]).round(2) for i, n in enumerate((40, 60, 50))]

with trefoil.local() as mpc:
    # Each hospital shares its own: in a session of three machines, party i has tables[i] alone.
    stays = np.concatenate([mpc.secret(table, owner=i) for i, table in enumerate(tables)])
    age, days = stays.T

    mean, deviation = np.mean(days), np.std(days)
    covariance = np.cov(stays, rowvar=False)
    long_stays_of_the_old = np.sum((age > 65) & (days > 7))
    shown = mpc.reveal(mean, deviation, covariance, long_stays_of_the_old)
    print(mpc.cost())

print("patients:", len(stays))
print(f"stay: mean {shown[0]:.2f} days, deviation {shown[1]:.2f}")
print("covariance of age and stay:", shown[2][0, 1].round(2))
print("older than 65 with more than a week:", shown[3])

# What no hospital could have computed alone.
everything = np.concatenate(tables)
assert np.allclose(shown[0], everything[:, 1].mean(), atol=1e-3)
assert np.allclose(shown[1], everything[:, 1].std(), atol=1e-3)
assert np.allclose(shown[2], np.cov(everything, rowvar=False), atol=1e-2)
assert shown[3] == np.sum((everything[:, 0] > 65) & (everything[:, 1] > 7))
