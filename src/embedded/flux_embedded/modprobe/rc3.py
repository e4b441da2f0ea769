"""What an instance does at its end, when nothing else is said: remove its modules."""


def setup(context):
    context.remove_modules()
