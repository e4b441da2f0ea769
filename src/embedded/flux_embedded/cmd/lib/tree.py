"""Trees as text."""

import shutil

#: style -> what stands before a child that is not the last, the last, and what is below each of them
STYLES = {
    "box": ("├── ", "└── ", "│   ", "    "),
    "ascii": ("|-- ", "`-- ", "|   ", "    "),
}


class Tree:
    """A node of a tree that can be printed.

    Args:
        label (str): its text
        prefix (str): what stands at the very beginning of its line
        combine_children (bool): a child that has the label of another is counted, not repeated
    """

    def __init__(self, label, prefix="", combine_children=False):
        self.label = label
        self.prefix = f"{prefix} " if prefix else ""
        self.combine_children = combine_children
        self.children = []
        self.duplicate_count = 1

    def append(self, label, prefix=""):
        """Add a child by its label; returns it, or the one it is counted with."""
        return self.append_tree(Tree(label, prefix, self.combine_children))

    def append_tree(self, tree):
        """Add a child; returns it, or the one it is counted with."""
        if self.combine_children and not tree.children:
            for child in self.children:
                if (child.prefix, child.label) == (tree.prefix, tree.label):
                    child.increment()
                    return child
        self.children.append(tree)
        return tree

    def add(self, label, prefix="", combine_children=False):
        """Add a child by its label, never counted with another; returns it."""
        tree = Tree(label, prefix, combine_children)
        self.children.append(tree)
        return tree

    def increment(self):
        """Count one more of it."""
        self.duplicate_count += 1

    def lines(self, style, level=None, lead="", connector=""):
        """Yield its lines, down to a level."""
        many = self.duplicate_count > 1
        label = f"{self.duplicate_count}*[{self.label}]" if many else self.label
        yield f"{self.prefix}{lead}{connector}{label}"
        if level is not None and level <= 0:
            return
        tee, elbow, pipe, blank = STYLES[style]
        if connector:
            lead += blank if connector == elbow else pipe
        for child in self.children:
            last = child is self.children[-1]
            below = None if level is None else level - 1
            yield from child.lines(style, below, lead, elbow if last else tee)

    def render(self, style="box", level=None, skip_root=False, truncate=True):
        """Print it.

        Args:
            style (str): ``box`` or ``ascii``
            level (int): go no deeper
            skip_root (bool): print the children only
            truncate (bool): cut lines at the width of the terminal
        """
        width = shutil.get_terminal_size((132, 25)).columns if truncate else None
        for tree in self.children if skip_root else (self,):
            for line in tree.lines(style, level):
                print(f"{line[: width - 1]}+" if width and len(line) > width else line)
