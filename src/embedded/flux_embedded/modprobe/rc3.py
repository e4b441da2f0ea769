"""The default shutdown script of an instance: remove its modules."""


def setup(context):
    context.remove_modules()
