"""What a model answered, for a person.

In: the JSON of an answer, and the request it answers.
Out: tables and text on stdout; a picture with what was found drawn on it.
May import: `cli.output`, `cli.printable`, `cli.failures`; `fornada_sdk.api_image`; Pillow where a picture is asked for.
"""
