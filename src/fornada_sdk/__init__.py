"""What a model's author imports, and what runs the model in its own interpreter.

In: a model folder; requests.
Out: answers.
May import: itself and the standard library of Python 3.9.
"""
