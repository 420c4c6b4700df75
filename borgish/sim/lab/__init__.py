"""``fauxmaster lab``: experiments that show with numbers what borgish claims of itself.

Each is a module with ``run``, which takes its options and returns a ``Report``. They use borgish's own
reconcilers, scheduler and core, on virtual time; what is the lab's alone, its docstring says. ``report`` is
what an experiment comes to, ``plots`` draws it, ``cell`` is a simulated cell to experiment on.
"""
