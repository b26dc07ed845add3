"""Side-by-side benchmarks: our node against others in one run, on one machine, with one client.

In: how long, how many rounds, how many connections.
Out: a table, JSON; ratios pair by pair.
May import: everything of ours, for this is a tool of this repository; nothing imports it.
"""
