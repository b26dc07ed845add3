"""Why a store can't be opened: starting again won't help, a person must look."""


class StoreUnusable(Exception):
    """The message is one line: which file, what is wrong with it, what to do."""
