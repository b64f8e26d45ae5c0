"""Two people's phones find out how long they were near each other's infected contacts, without showing whom they met."""

import numpy as np

import trefoil
from trefoil import functions

rng = np.random.default_rng(11)
# What both phones' makers share, and the three parties do not know: keys say nothing of a contact without it.
SECRET = bytes(range(32))

# A phone notes the code that another phone sent, and the minutes it was near. The clinic has the codes of infected people.
everybody = [f"code-{number:04}" for number in range(400)]
met = rng.choice(everybody, 60, replace=False)
minutes = rng.integers(1, 90, 60)
infected = rng.choice(everybody, 80, replace=False)
days_ago = rng.integers(0, 14, 80)

with trefoil.local() as mpc:
    keys = mpc.secret(functions.join_keys(SECRET, met), owner=0)
    near = mpc.secret(minutes, owner=0)
    cases = mpc.secret(functions.join_keys(SECRET, infected), owner=1)
    days = mpc.secret(days_ago, owner=1)

    # The pairs come in the order of their keys, with zeros behind the last: nobody learns who they are.
    (near,), (days,), is_pair, pairs = functions.join(keys, [near], cases, [days])
    recent = is_pair & (days <= 7)
    exposure = np.sum(np.where(recent, near, 0))
    long_ones = np.sum(recent & (near >= 15))
    shown = [int(number.sum()) for number in mpc.reveal(pairs, exposure, long_ones)]
    print(mpc.cost())

print("infected people met:", shown[0])
print(f"within the last week: {shown[1]} minutes, {shown[2]} meetings of 15 minutes or more")

# The same in the clear, which neither side could have computed alone.
times = dict(zip(met, minutes))
recent = [times[code] for code, day in zip(infected, days_ago) if code in times and day <= 7]
clear = [sum(code in times for code in infected), sum(recent), sum(time >= 15 for time in recent)]
print("in the clear:", *clear)
assert shown == clear
