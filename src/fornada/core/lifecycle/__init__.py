"""What a thing with a life may do next: events in, commands out.

In: a state and an event.
Out: the next state and the commands that carry it out.
May import: `core`.
"""
